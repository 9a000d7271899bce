//! Streams whose reader is slow or absent.

use super::*;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

/// Returns a writer to one end, and the other end.
fn writer_to((reader, stream): (OwnedFd, OwnedFd)) -> (File, &'static Writer) {
    let stream: &'static OwnedFd = Box::leak(Box::new(stream));
    (File::from(reader), Box::leak(Box::new(Writer::to(stream.as_fd()))))
}

/// Returns a pipe that holds a page.
fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a small pipe");
    (reader, writer)
}

fn count(dropped: u64) -> String {
    format!("dropped {dropped}\n")
}

/// Prints a numbered line of 100 bytes.
fn say(writer: &'static Writer, number: usize) {
    writer.line(format!("{number:<99}\n"), false, count);
}

/// Blocks the thread on a full pipe.
fn fill(writer: &'static Writer) {
    writer.line("x".repeat(4096), false, count);
    until_empty(writer);
    writer.line("line\n".into(), false, count);
    while !locked(&writer.queue).texts.is_empty() {
        thread::yield_now();
    }
}

fn until_empty(writer: &'static Writer) {
    writer.finish(Duration::from_secs(20)).expect("written");
}

#[test]
fn dropped_lines_are_counted_in_their_place() {
    let (mut reader, writer) = writer_to(pipe());
    fill(writer);
    let begun = Instant::now();
    (0..1000).for_each(|number| say(writer, number));
    writer.line("failed\n".into(), true, count);
    assert_eq!(writer.finish(BRIEF).expect_err("nothing is read").kind(), ErrorKind::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while !text.ends_with("failed\n") {
        let count = reader.read(&mut bytes).expect("readable");
        text.push_str(std::str::from_utf8(&bytes[..count]).expect("text"));
    }
    until_empty(writer);
    let lines: Vec<&str> = text[4096..].lines().map(str::trim_end).collect();
    let kept = ROOM / 100;
    let wanted = (0..kept).map(|n| n.to_string());
    let wanted: Vec<String> = ["line".into()]
        .into_iter()
        .chain(wanted)
        .chain([format!("dropped {}", 1000 - kept), "failed".into()])
        .collect();
    assert_eq!(lines, wanted);
    // When there is room again, the writer accepts lines again.
    say(writer, 7);
    until_empty(writer);
    assert_eq!(reader.read(&mut bytes).expect("readable"), 100);
}

#[test]
fn drawing_behind_a_blocked_one_is_left_out() {
    let (mut reader, writer) = writer_to(pipe());
    fill(writer);
    for n in 0..10_000 {
        writer.draw(format!("{n}"));
    }
    assert!(locked(&writer.queue).texts.is_empty());
    writer.line("after\n".into(), false, count);
    let begun = Instant::now();
    writer.finish(BRIEF).expect_err("nothing is read");
    assert!(begun.elapsed() < BRIEF * 5, "{:?}", begun.elapsed());
    let mut text = vec![0; 4096];
    reader.read_exact(&mut text).expect("readable");
    until_empty(writer);
    let mut text = [0; 100];
    let count = reader.read(&mut text).expect("readable");
    assert_eq!(&text[..count], b"line\nafter\n");
    writer.draw("drawn".into());
    until_empty(writer);
    let count = reader.read(&mut text).expect("readable");
    assert_eq!(&text[..count], b"drawn");
}

#[test]
fn nonblocking_stream_gets_whole_lines() {
    let (reader, stream) = pipe();
    let flags = rustix::fs::fcntl_getfl(&stream).expect("flags");
    rustix::fs::fcntl_setfl(&stream, flags | rustix::fs::OFlags::NONBLOCK).expect("set");
    let (mut reader, writer) = writer_to((reader, stream));
    writer.line("x".repeat(9000), false, count);
    let mut text = vec![0; 9000];
    reader.read_exact(&mut text).expect("readable");
    until_empty(writer);
}

#[test]
fn without_a_thread_the_caller_writes() {
    let (mut reader, writer) = writer_to(pipe());
    locked(&writer.queue).texts.push_back("here\n".into());
    writer.write_queue();
    let mut text = [0; 5];
    reader.read_exact(&mut text).expect("readable");
    assert_eq!(&text, b"here\n");
}
