from pgwire_codec._input import Messages
from pgwire_codec.tables import MessageTable

def scan(messages: Messages, *, streaming: bool = False, skip: bool = False) -> MessageTable: ...
