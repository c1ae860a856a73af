//! Parses each message of a file with elefant-client, as borrowed text or bytes, without types.

use elefant_client::replication::{
    parse_pgoutput_message, PgOutputMessage, TupleColumn, TupleData,
};

#[path = "../../passes.rs"]
mod passes;

fn main() {
    passes::measure(
        |data| passes::split(data.leak()).collect(),
        |messages: &[&[u8]], seen| {
            for message in messages {
                match parse_pgoutput_message(message).expect("a valid message") {
                    PgOutputMessage::Insert(insert) => add(&insert.tuple, seen),
                    PgOutputMessage::Update(update) => add(&update.new_tuple, seen),
                    PgOutputMessage::Delete(delete) => add(&delete.old_tuple, seen),
                    _ => {}
                }
            }
        },
    );
}

fn add(tuple: &TupleData, seen: &mut passes::Seen) {
    seen.changes += 1;
    for column in &tuple.columns {
        seen.bytes += match column {
            TupleColumn::Text(text) => text.len(),
            TupleColumn::Binary(bytes) => bytes.len(),
            _ => 0,
        } as u64;
    }
}
