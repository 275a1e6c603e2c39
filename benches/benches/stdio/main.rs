//! Load client for stdio MCP servers of files: compares bailiwick with other servers and with a floor.
//!
//! `cargo bench -p bailiwick-benches --bench stdio -- [CASE]... [--server NAME=DIALECT:COMMAND]... [--rounds N]
//! [--time MILLISECONDS] [--tree FILES]`. In each round, every server runs each case once, one server after the other.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "benchmarks panic on failure and print their results"
)]

mod cases;
mod client;
mod process;
mod servers;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_benches::{brief, median};
use cases::{CASES, Case, Metric, Operation, Target};
use client::Client;
use servers::{Dialect, Folders, Server};

/// Names of the cases that are not load tests.
const START: &str = "start";
const MEMORY: &str = "memory";
const SESSION: &str = "session";
/// The calls of the case `session`: each operation, and how often it is called.
const SESSION_CALLS: [(Operation, usize); 3] = [
    (Operation::ReadSmall, 50),
    (Operation::Apply, 20),
    (Operation::Find, 10),
];

/// Medians over rounds, for one server.
#[derive(Debug)]
struct Row {
    name: String,
    rounds: Vec<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: f64,
    /// Microseconds per call.
    cpu: f64,
    p50: f64,
    p99: f64,
    /// Milliseconds per call.
    time: f64,
}

struct Arguments {
    cases: Vec<String>,
    servers: Vec<Server>,
    rounds: usize,
    time: Duration,
    tree: usize,
}

fn arguments() -> Arguments {
    let mut parsed = Arguments {
        cases: Vec::new(),
        servers: Vec::new(),
        rounds: if brief() { 1 } else { 5 },
        time: Duration::from_millis(if brief() { 5 } else { 400 }),
        tree: if brief() { 200 } else { 20_000 },
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("the option has a value");
        match argument.as_str() {
            // Passed by cargo.
            "--bench" => {}
            "--server" => {
                let server = Server::parse(&value()).expect("NAME=DIALECT:COMMAND");
                parsed.servers.push(server);
            }
            "--rounds" => parsed.rounds = value().parse().unwrap(),
            "--time" => parsed.time = Duration::from_millis(value().parse().unwrap()),
            "--tree" => parsed.tree = value().parse().unwrap(),
            _ => parsed.cases.push(argument),
        }
    }
    parsed
}

fn main() {
    let arguments = arguments();
    let folders = Folders::find();
    let programs = tempfile::tempdir().unwrap();
    let mut servers = folders.servers(programs.path());
    servers.extend(arguments.servers.iter().cloned());
    let chosen = |name: &str| {
        let cases = &arguments.cases;
        cases.is_empty() || cases.iter().any(|case| case == name)
    };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let cases: Vec<&Case> = CASES.iter().filter(|case| chosen(case.name)).collect();
    for case in &cases {
        case.operation.prepare(&root, arguments.tree).unwrap();
    }
    println!(
        "{:<10} {:<20} {:>10} {:>11} {:>10} {:>10}  target",
        "case", "server", "calls/s", "cpu us/call", "p50 us", "p99 us"
    );
    for case in cases {
        run_case(case, &servers, &folders, &root, &arguments);
    }
    if chosen(START) {
        Operation::ReadSmall.prepare(&root, 0).unwrap();
        start(&servers, &root, arguments.rounds * 3);
    }
    if chosen(MEMORY) {
        Operation::ReadLarge.prepare(&root, 0).unwrap();
        memory(&servers, &root, arguments.time);
    }
    if chosen(SESSION) {
        for (operation, _) in SESSION_CALLS {
            operation.prepare(&root, arguments.tree).unwrap();
        }
        session(&servers, &root);
    }
}

fn run_case(case: &Case, servers: &[Server], folders: &Folders, root: &Path, options: &Arguments) {
    let mut clients = Vec::new();
    for server in servers {
        let slots =
            (0..case.in_flight).map(|slot| case.operation.requests(server.dialect, root, slot));
        let slots: Vec<_> = slots.collect();
        if slots.iter().any(Vec::is_empty) {
            continue;
        }
        let mut client = Client::start(&server.command(root)).unwrap();
        // Also fills caches. The run that is measured starts with the same files.
        let once = slots[0]
            .iter()
            .try_for_each(|request| client.one(request).map(drop));
        if let Err(error) = once {
            assert_ne!(server.dialect, Dialect::Bailiwick, "{error}");
            println!("{:<10} {:<20} fails", case.name, server.name);
            continue;
        }
        client.run(&slots, options.time / 8).unwrap();
        clients.push((client, slots, Row::new(&server.name)));
    }
    let program = case.operation.program(root);
    let program =
        program.and_then(|(name, arguments)| Some((name, folders.program(name)?, arguments)));
    let mut program_row = Row::new(program.as_ref().map_or("", |(name, ..)| name));
    for _ in 0..options.rounds {
        for (client, slots, row) in &mut clients {
            let run = client.run(slots, options.time).unwrap();
            row.rounds.push(Sample::of(run));
        }
        if let Some((_, path, arguments)) = &program {
            program_row.rounds.push(time_program(path, arguments));
        }
    }
    let mut rows: Vec<Row> = clients.into_iter().map(|(_, _, row)| row).collect();
    rows.extend(program.map(|_| program_row));
    for row in &rows {
        row.print(case, &rows);
    }
}

impl Sample {
    fn of(mut run: client::Run) -> Self {
        run.latencies.sort();
        let at =
            |part: usize| run.latencies[(run.latencies.len() - 1) * part / 100].as_secs_f64() * 1e6;
        let calls = run.calls as f64;
        Self {
            rate: calls / run.wall.as_secs_f64(),
            cpu: run.cpu.as_secs_f64() * 1e6 / calls,
            p50: at(50),
            p99: at(99),
            time: run.wall.as_secs_f64() * 1e3 / calls,
        }
    }

    fn metric(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Rate => self.rate,
            Metric::Cpu => self.cpu,
            Metric::Time => self.time,
        }
    }
}

impl Row {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rounds: Vec::new(),
        }
    }

    fn median(&self, field: impl Fn(&Sample) -> f64) -> f64 {
        median(self.rounds.iter().map(field))
    }

    fn print(&self, case: &Case, rows: &[Self]) {
        let verdict = case.target.filter(|_| self.name == "bailiwick");
        println!(
            "{:<10} {:<20} {:>10.1} {:>11.1} {:>10.0} {:>10.0}  {}",
            case.name,
            self.name,
            self.median(|it| it.rate),
            self.median(|it| it.cpu),
            self.median(|it| it.p50),
            self.median(|it| it.p99),
            verdict
                .map(|target| self.verdict(&target, rows))
                .unwrap_or_default(),
        );
    }

    /// Compares with a target: the median over rounds of the ratio.
    fn verdict(&self, target: &Target, rows: &[Self]) -> String {
        let Some(peer) = rows.iter().find(|row| row.name == target.with) else {
            return format!("{} is not installed", target.with);
        };
        let rounds = self.rounds.iter().zip(&peer.rounds);
        let ratios =
            rounds.map(|(own, peer)| own.metric(target.metric) / peer.metric(target.metric));
        let ratio = median(ratios);
        let (sign, met, what) = match target.metric {
            Metric::Rate => (">=", ratio >= target.ratio, "calls/s"),
            Metric::Cpu => ("<=", ratio <= target.ratio, "cpu"),
            Metric::Time => ("<=", ratio <= target.ratio, "time"),
        };
        let verdict = if met { "reached" } else { "MISSED" };
        format!(
            "{what} {sign} {} x {}: {ratio:.2} x {verdict}",
            target.ratio, target.with
        )
    }
}

fn time_program(path: &str, arguments: &[String]) -> Sample {
    let began = Instant::now();
    let mut command = Command::new(path);
    let status = command
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{path} {arguments:?}");
    let time = began.elapsed().as_secs_f64();
    Sample {
        rate: 1.0 / time,
        cpu: f64::NAN,
        p50: time * 1e6,
        p99: time * 1e6,
        time: time * 1e3,
    }
}

/// The time from the start of a server to the result of its first tool call.
fn start(servers: &[Server], root: &Path, rounds: usize) {
    let mut times = vec![Vec::new(); servers.len()];
    for _ in 0..rounds {
        for (server, times) in servers.iter().zip(&mut times) {
            let request = Operation::ReadSmall.requests(server.dialect, root, 0);
            let began = Instant::now();
            let mut client = Client::start(&server.command(root)).unwrap();
            client.one(&request[0]).unwrap();
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    for (server, times) in servers.iter().zip(times) {
        let time = median(times.into_iter());
        let verdict = limit(server, time, 5.0, "ms");
        println!(
            "{START:<10} {:<20} {time:>10.1} ms to the first result {verdict}",
            server.name
        );
    }
}

/// Resident memory after the first call, and its maximum with 64 reads of 1 MiB in flight.
fn memory(servers: &[Server], root: &Path, time: Duration) {
    for server in servers {
        let requests = |slot| Operation::ReadLarge.requests(server.dialect, root, slot);
        let mut client = Client::start(&server.command(root)).unwrap();
        client
            .one(&client::method("ping", &serde_json::json!({})))
            .unwrap();
        let (idle, _) = process::resident(client.pid());
        let slots: Vec<_> = (0..64).map(requests).collect();
        client.run(&slots, time).unwrap();
        let (_, peak) = process::resident(client.pid());
        let verdict = limit(server, peak, 16.0, "MiB");
        println!(
            "{MEMORY:<10} {:<20} {idle:>10.1} MiB idle, {peak:.1} MiB at 64 x 1 MiB {verdict}",
            server.name
        );
    }
}

/// Prints how many bytes of text a model reads in the results of a session.
fn session(servers: &[Server], root: &Path) {
    let read: Vec<_> = servers
        .iter()
        .map(|server| session_bytes(server, root))
        .collect();
    let npm = servers
        .iter()
        .zip(&read)
        .find(|(it, _)| it.dialect == Dialect::Npm);
    for (server, read) in servers.iter().zip(&read) {
        let Some(bytes) = read else {
            println!("{SESSION:<10} {:<20} fails", server.name);
            continue;
        };
        let compared = npm.and_then(|(_, npm)| Some(*bytes as f64 / (*npm)? as f64));
        let compared = compared.map_or_else(String::new, |ratio| {
            let verdict = limit(server, ratio, 0.5, "x");
            format!("{ratio:.2} x npm {verdict}")
        });
        println!(
            "{SESSION:<10} {:<20} {bytes:>10} bytes of text {compared}",
            server.name
        );
    }
}

/// Bytes of text in the results; `None` if a call fails or the server does not support an operation.
fn session_bytes(server: &Server, root: &Path) -> Option<usize> {
    let mut client = Client::start(&server.command(root)).unwrap();
    let mut bytes = 0;
    for (operation, calls) in SESSION_CALLS {
        let requests = operation.requests(server.dialect, root, 0);
        for request in requests.iter().cycle().take(calls) {
            let result = client.one(request).ok()?;
            let content = result["content"].as_array().into_iter().flatten();
            let texts = content.filter_map(|part| part["text"].as_str());
            bytes += texts.map(str::len).sum::<usize>();
        }
        if requests.is_empty() {
            return None;
        }
    }
    Some(bytes)
}

fn limit(server: &Server, value: f64, max: f64, unit: &str) -> String {
    if server.dialect != Dialect::Bailiwick {
        return String::new();
    }
    let verdict = if value <= max { "reached" } else { "MISSED" };
    format!(" <= {max} {unit}: {verdict}")
}
