//! A client of a stdio MCP server, which keeps a number of requests in flight.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use memchr::{memchr, memmem};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::{Value, json};

use crate::process::CpuTimes;

/// What one run of a case measured.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) calls: usize,
    pub(crate) wall: Duration,
    /// CPU time of the server.
    pub(crate) cpu: Duration,
    /// From the write of each request to the read of its answer.
    pub(crate) latencies: Vec<Duration>,
}

/// The rest of a request after its id.
pub(crate) type RequestTail = String;

pub(crate) struct Client {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Bytes that were read and are not yet answers.
    read: Vec<u8>,
    /// Requests that are not yet written.
    unsent: Vec<u8>,
    chunk: Vec<u8>,
}

impl Client {
    /// Starts a server and performs the handshake.
    pub(crate) fn start(command: &[String]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let mut child = Command::new(program)
            .args(arguments)
            // bailiwick refuses variables that it does not know.
            .env_remove("BAILIWICK_BENCH_BRIEF")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let input = child.stdin.take().expect("standard input is a pipe");
        let output = child.stdout.take().expect("standard output is a pipe");
        fcntl_setfl(&input, OFlags::NONBLOCK)?;
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        let mut client = Self {
            child,
            input,
            output,
            read: Vec::new(),
            unsent: Vec::new(),
            chunk: vec![0; 256 << 10],
        };
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "0" },
        });
        client.one(&method("initialize", &params))?;
        client
            .unsent
            .extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        Ok(client)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one request and returns its result.
    ///
    /// # Errors
    /// Also if the answer is an error.
    pub(crate) fn one(&mut self, tail: &str) -> io::Result<Value> {
        self.send(0, tail);
        loop {
            self.transfer()?;
            let mut answer = None;
            self.take_lines(|line| {
                let message: Value = serde_json::from_slice(line).expect("a server sends JSON");
                if message.get("id") == Some(&json!(0)) {
                    answer = Some(message);
                }
            });
            if let Some(mut answer) = answer {
                let is_error = answer.pointer("/result/isError") == Some(&json!(true));
                if is_error || answer.get("result").is_none() {
                    return Err(io::Error::other(format!("{tail} failed: {answer}")));
                }
                return Ok(answer["result"].take());
            }
        }
    }

    /// Keeps one request per list of `slots` in flight for `time`. Each slot repeats its list, and completes it.
    ///
    /// # Panics
    /// If a request fails.
    pub(crate) fn run(&mut self, slots: &[Vec<RequestTail>], time: Duration) -> io::Result<Run> {
        let mut turns = vec![0; slots.len()];
        let mut sent = vec![Instant::now(); slots.len()];
        let mut latencies = Vec::new();
        let (began, spent) = (Instant::now(), CpuTimes::of(self.pid()));
        for slot in 0..slots.len() {
            self.request(slots, slot, &mut turns);
        }
        let mut open = slots.len();
        while open > 0 {
            self.transfer()?;
            let now = Instant::now();
            let mut answered = Vec::new();
            self.take_lines(|line| answered.extend(answered_id(line)));
            for id in answered {
                latencies.push(now - sent[id]);
                // Lists are completed, so that the next run starts with the same files.
                if began.elapsed() < time || !turns[id].is_multiple_of(slots[id].len()) {
                    sent[id] = now;
                    self.request(slots, id, &mut turns);
                } else {
                    open -= 1;
                }
            }
        }
        let wall = began.elapsed();
        Ok(Run {
            calls: latencies.len(),
            wall,
            cpu: CpuTimes::of(self.pid()).since(&spent),
            latencies,
        })
    }

    fn request(&mut self, slots: &[Vec<RequestTail>], slot: usize, turns: &mut [usize]) {
        let list = &slots[slot];
        let tail = &list[turns[slot] % list.len()];
        turns[slot] += 1;
        self.send(slot, tail);
    }

    fn send(&mut self, id: usize, tail: &str) {
        write!(self.unsent, r#"{{"jsonrpc":"2.0","id":{id}{tail}"#).expect("a Vec can be written");
        self.unsent.push(b'\n');
    }

    /// Waits until the server takes or sends bytes, and moves them.
    fn transfer(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            match self.input.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let output = PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::IN);
        let input = PollFd::from_borrowed_fd(self.input.as_fd(), PollFlags::OUT);
        let mut both = [output, input];
        let waiting = if self.unsent.is_empty() { 1 } else { 2 };
        poll(&mut both[..waiting], None)?;
        match self.output.read(&mut self.chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.read.extend_from_slice(&self.chunk[..read]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn take_lines(&mut self, mut take: impl FnMut(&[u8])) {
        let mut from = 0;
        while let Some(end) = memchr(b'\n', &self.read[from..]) {
            take(&self.read[from..from + end]);
            from += end + 1;
        }
        self.read.drain(..from);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rest of a request of this method.
pub(crate) fn method(name: &str, params: &Value) -> RequestTail {
    format!(r#","method":"{name}","params":{params}}}"#)
}

/// The id of an answer, without parsing it all; `None` for notifications and requests. It is the first or the last
/// member.
fn answered_id(line: &[u8]) -> Option<usize> {
    let head = &line[..line.len().min(64)];
    let tail = &line[line.len().saturating_sub(40)..];
    let id = [head, tail].into_iter().find_map(|part| {
        let at = memmem::rfind(part, b"\"id\":")?;
        let digits = part[at + 5..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect())
            .ok()?
            .parse()
            .ok()
    })?;
    let failed = memmem::find(head, b"\"error\":").is_some()
        || memmem::find(line, b"\"isError\":true").is_some();
    assert!(!failed, "a call failed: {}", String::from_utf8_lossy(line));
    Some(id)
}
