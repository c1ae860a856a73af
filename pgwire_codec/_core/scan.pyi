from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import MessageTable

def scan(messages: Messages, *, streaming: bool = False, skip: bool = False) -> MessageTable: ...
