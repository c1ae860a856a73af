//! Parses each message of a file with pg_walstream: as views without types, or as typed rows.

use bytes::Bytes;
use chrono::NaiveDate;
use pg_walstream::{
    EventType, LogicalReplicationMessage, LogicalReplicationParser, Lsn, PgOutputDecoder, RowData,
    TupleData,
};
use rust_decimal::Decimal;
use serde::Deserialize;
use std::hint::black_box;

#[path = "../../passes.rs"]
mod passes;

#[allow(dead_code)]
#[derive(Deserialize)]
struct LineItem<'a> {
    l_orderkey: i64,
    l_partkey: i32,
    l_suppkey: i32,
    l_linenumber: i32,
    l_quantity: Decimal,
    l_extendedprice: Decimal,
    l_discount: Decimal,
    l_tax: Decimal,
    l_returnflag: &'a str,
    l_linestatus: &'a str,
    l_shipdate: NaiveDate,
    l_commitdate: NaiveDate,
    l_receiptdate: NaiveDate,
    l_shipinstruct: &'a str,
    l_shipmode: &'a str,
    l_comment: &'a str,
}

fn main() {
    if std::env::args().nth(3).as_deref() == Some("typed") {
        passes::measure(shared, typed);
    } else {
        passes::measure(shared, untyped);
    }
}

/// Returns messages that share a counted buffer, as those that a connection has read.
fn shared(data: Vec<u8>) -> Vec<Bytes> {
    let data = Bytes::from(data);
    passes::split(&data)
        .map(|message| data.slice_ref(message))
        .collect()
}

fn untyped(messages: &[Bytes], seen: &mut passes::Seen) {
    let mut parser = LogicalReplicationParser::with_protocol_version(1);
    for message in messages {
        let parsed = parser.parse_wal_message_bytes(message.clone());
        match parsed.expect("a valid message").message {
            LogicalReplicationMessage::Insert { tuple, .. } => add(&tuple, seen),
            LogicalReplicationMessage::Update { new_tuple, .. } => add(&new_tuple, seen),
            LogicalReplicationMessage::Delete { old_tuple, .. } => add(&old_tuple, seen),
            _ => {}
        }
    }
}

fn add(tuple: &TupleData, seen: &mut passes::Seen) {
    seen.changes += 1;
    seen.bytes += tuple
        .columns
        .iter()
        .map(|column| column.as_bytes().len() as u64)
        .sum::<u64>();
}

fn typed(messages: &[Bytes], seen: &mut passes::Seen) {
    let mut decoder = PgOutputDecoder::with_protocol_version(1);
    for message in messages {
        let event = decoder.decode_message(message.clone(), Lsn(0));
        if let Some(event) = event.expect("a valid message") {
            if let EventType::Insert { data, .. } = &event.event_type {
                add_typed(data, seen);
            }
        }
    }
}

fn add_typed(row: &RowData, seen: &mut passes::Seen) {
    black_box(
        row.deserialize_borrowed::<LineItem>()
            .expect("a row of lineitem"),
    );
    seen.changes += 1;
    seen.bytes += row
        .iter()
        .map(|(_, value)| value.as_bytes().len() as u64)
        .sum::<u64>();
}
