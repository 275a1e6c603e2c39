//! Compares cases with a baseline by the median ratio of interleaved rounds.
//!
//! The results are ratios, measured on a shared machine. So all cases run in every round, a round counts its best batch, and
//! the result is the median over rounds. Harnesses that run one case after the other, like criterion, are affected by other
//! load.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The number of batches per round. The best one counts.
const BATCHES: usize = 5;
/// The minimum number of rounds.
const MIN_ROUNDS: usize = 7;

/// Whether benchmarks only check that they work, which takes milliseconds. Their figures mean nothing then.
#[must_use]
pub fn brief() -> bool {
    std::env::var_os("BAILIWICK_BENCH_BRIEF").is_some()
}

/// The target of a case.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// At most this multiple of the baseline.
    Times(f64),
    /// At most this many nanoseconds.
    Nanos(f64),
    /// No target.
    None,
}

struct Case<'r> {
    name: &'static str,
    target: Target,
    batch: u32,
    run: Box<dyn FnMut(u32) + 'r>,
    cleanup: Box<dyn FnMut() + 'r>,
    samples: Vec<Sample>,
}

/// The nanoseconds of one operation.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Wall time.
    wall: f64,
    /// CPU time of all threads, including work that the operation started in the background.
    cpu: f64,
}

/// A benchmark with several cases. The first one is the baseline.
pub struct Benchmark<'r> {
    title: &'static str,
    cases: Vec<Case<'r>>,
    time: Duration,
}

impl std::fmt::Debug for Benchmark<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Benchmark")
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

impl<'r> Benchmark<'r> {
    /// Creates a benchmark that takes about `time`.
    #[must_use]
    pub fn new(title: &'static str, time: Duration) -> Self {
        Self {
            title,
            cases: Vec::new(),
            time,
        }
    }

    /// Adds a case. `run` repeats the operation the given number of times.
    #[must_use]
    pub fn case(
        self,
        name: &'static str,
        target: Target,
        batch: u32,
        run: impl FnMut(u32) + 'r,
    ) -> Self {
        self.case_then(name, target, batch, run, || {})
    }

    /// Adds a case whose batches need a cleanup. `cleanup` does not count as wall time.
    #[must_use]
    pub fn case_then(
        mut self,
        name: &'static str,
        target: Target,
        batch: u32,
        run: impl FnMut(u32) + 'r,
        cleanup: impl FnMut() + 'r,
    ) -> Self {
        self.cases.push(Case {
            name,
            target,
            batch,
            run: Box::new(run),
            cleanup: Box::new(cleanup),
            samples: Vec::new(),
        });
        self
    }

    /// Runs all cases and prints the results.
    pub fn run(mut self) {
        if brief() {
            for case in &mut self.cases {
                case.batch = 1;
                let once = case.sample();
                case.samples.push(once);
            }
            return self.report(1);
        }
        for case in &mut self.cases {
            case.sample();
        }
        let began = Instant::now();
        let mut rounds = 0;
        while rounds < MIN_ROUNDS || began.elapsed() < self.time {
            for case in &mut self.cases {
                let best = case.sample();
                case.samples.push(best);
            }
            rounds += 1;
        }
        self.report(rounds);
    }

    #[expect(clippy::print_stdout, reason = "benchmarks print their results")]
    fn report(&self, rounds: usize) {
        println!("\n{} ({rounds} rounds)", self.title);
        println!(
            "{:<46} {:>10} {:>6} {:>10} {:>6}  target",
            "case", "wall ns", "x", "cpu ns", "x"
        );
        let Some(baseline) = self.cases.first() else {
            return;
        };
        for case in &self.cases {
            let wall = median(case.samples.iter().map(|sample| sample.wall));
            let cpu = median(case.samples.iter().map(|sample| sample.cpu));
            let times = case.ratio(baseline, |sample| sample.wall);
            let cpu_times = case.ratio(baseline, |sample| sample.cpu);
            let (target, met) = match case.target {
                Target::Times(max) => (format!("<= {max} x"), times <= max),
                Target::Nanos(max) => (format!("<= {max} ns"), wall <= max),
                Target::None => (String::new(), true),
            };
            let verdict = match (target.is_empty(), met) {
                (true, _) => "",
                (false, true) => "reached",
                (false, false) => "MISSED",
            };
            println!(
                "{:<46} {wall:>10.0} {times:>6.2} {cpu:>10.0} {cpu_times:>6.2}  {target} {verdict}",
                case.name
            );
        }
    }
}

impl Case<'_> {
    fn sample(&mut self) -> Sample {
        let mut best = Sample {
            wall: f64::INFINITY,
            cpu: f64::INFINITY,
        };
        for _ in 0..BATCHES {
            let (began, spent) = (Instant::now(), process_time());
            (self.run)(self.batch);
            let wall = began.elapsed();
            (self.cleanup)();
            let cpu = process_time() - spent;
            let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(self.batch);
            best.wall = best.wall.min(each(wall));
            best.cpu = best.cpu.min(each(cpu));
        }
        best
    }

    /// The median over rounds of the ratio to the baseline.
    fn ratio(&self, baseline: &Self, metric: impl Fn(&Sample) -> f64) -> f64 {
        let rounds = self.samples.iter().zip(&baseline.samples);
        median(rounds.map(|(sample, base)| metric(sample) / metric(base)))
    }
}

/// The median; NaN if there are no values.
#[must_use]
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The CPU time of all threads of the process.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
