//! Passes over the messages of a file, and the CPU time of each: `PROGRAM FILE PASSES [typed]`.

use std::{env, fs, iter, mem::MaybeUninit};

/// What a pass found: changes, and the bytes of their values. It shows that the work was done.
#[derive(Default)]
pub struct Seen {
    pub changes: u64,
    pub bytes: u64,
}

/// Measures passes over the messages, after one that does not count, and prints them as JSON.
///
/// `prepare` makes the messages of the file's bytes, and is not measured.
pub fn measure<M>(prepare: impl FnOnce(Vec<u8>) -> Vec<M>, mut pass: impl FnMut(&[M], &mut Seen)) {
    let arguments: Vec<String> = env::args().collect();
    let messages = prepare(fs::read(&arguments[1]).expect("a file of messages"));
    let passes: usize = arguments[2].parse().expect("a number of passes");
    let mut seen = Seen::default();
    pass(&messages, &mut seen);
    let mut nanoseconds = Vec::new();
    for _ in 0..passes {
        seen = Seen::default();
        let start = cpu_nanoseconds();
        pass(&messages, &mut seen);
        nanoseconds.push((cpu_nanoseconds() - start).to_string());
    }
    println!(
        r#"{{"nanoseconds": [{}], "messages": {}, "changes": {}, "bytes": {}}}"#,
        nanoseconds.join(", "),
        messages.len(),
        seen.changes,
        seen.bytes
    );
}

/// Iterates over messages that have their length before them, in 4 bytes, big-endian.
pub fn split(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let (message, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        data = rest;
        Some(message)
    })
}

fn cpu_nanoseconds() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills the struct, which lives until it is read.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
