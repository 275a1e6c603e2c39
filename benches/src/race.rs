//! Cases beside their baseline in, the median ratio of interleaved rounds out.
//!
//! The figures that matter here are ratios on a machine that others use too. So all cases take turns in every
//! round, the best of a few batches stands for a round, and the median over rounds is told. A harness that runs
//! one case to its end before the next, as criterion does, measures the neighbours.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Batches of which the best stands for a round.
const BATCHES: usize = 5;
/// Rounds at least, however long they take.
const MIN_ROUNDS: usize = 7;

/// What a case is to reach.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// At most so many times the baseline.
    Times(f64),
    /// At most so many nanoseconds.
    Nanos(f64),
    /// It stands there to be compared.
    None,
}

struct Lane<'r> {
    name: &'static str,
    target: Target,
    batch: u32,
    run: Box<dyn FnMut(u32) + 'r>,
    rest: Box<dyn FnMut() + 'r>,
    laps: Vec<Lap>,
}

/// Nanoseconds of one operation.
#[derive(Clone, Copy, Debug)]
struct Lap {
    /// As the caller waits.
    wall: f64,
    /// Of all threads of the process, until everything the operation set going is done.
    cpu: f64,
}

/// Cases that take turns; the first is the baseline.
pub struct Race<'r> {
    title: &'static str,
    lanes: Vec<Lane<'r>>,
    time: Duration,
}

impl std::fmt::Debug for Race<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Race")
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

impl<'r> Race<'r> {
    /// A race that lasts about `time`.
    #[must_use]
    pub fn new(title: &'static str, time: Duration) -> Self {
        Self {
            title,
            lanes: Vec::new(),
            time,
        }
    }

    /// Adds a case: `run` does the operation so many times.
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

    /// Adds a case whose batch leaves something behind; `rest` ends it, and nobody waits for that.
    #[must_use]
    pub fn case_then(
        mut self,
        name: &'static str,
        target: Target,
        batch: u32,
        run: impl FnMut(u32) + 'r,
        rest: impl FnMut() + 'r,
    ) -> Self {
        self.lanes.push(Lane {
            name,
            target,
            batch,
            run: Box::new(run),
            rest: Box::new(rest),
            laps: Vec::new(),
        });
        self
    }

    /// Runs every case in turn and prints what came out.
    pub fn run(mut self) {
        for lane in &mut self.lanes {
            lane.lap();
        }
        let began = Instant::now();
        let mut rounds = 0;
        while rounds < MIN_ROUNDS || began.elapsed() < self.time {
            for lane in &mut self.lanes {
                let best = lane.lap();
                lane.laps.push(best);
            }
            rounds += 1;
        }
        self.report(rounds);
    }

    #[expect(clippy::print_stdout, reason = "a bench tells what it found")]
    fn report(&self, rounds: usize) {
        println!("\n{} ({rounds} rounds)", self.title);
        println!(
            "{:<46} {:>10} {:>6} {:>10} {:>6}  target",
            "case", "wall ns", "x", "cpu ns", "x"
        );
        let Some(baseline) = self.lanes.first() else {
            return;
        };
        for lane in &self.lanes {
            let wall = median(lane.laps.iter().map(|lap| lap.wall));
            let cpu = median(lane.laps.iter().map(|lap| lap.cpu));
            let times = lane.beside(baseline, |lap| lap.wall);
            let cpu_times = lane.beside(baseline, |lap| lap.cpu);
            let (wanted, met) = match lane.target {
                Target::Times(most) => (format!("<= {most} x"), times <= most),
                Target::Nanos(most) => (format!("<= {most} ns"), wall <= most),
                Target::None => (String::new(), true),
            };
            let verdict = match (wanted.is_empty(), met) {
                (true, _) => "",
                (false, true) => "reached",
                (false, false) => "MISSED",
            };
            println!(
                "{:<46} {wall:>10.0} {times:>6.2} {cpu:>10.0} {cpu_times:>6.2}  {wanted} {verdict}",
                lane.name
            );
        }
    }
}

impl Lane<'_> {
    fn lap(&mut self) -> Lap {
        let mut best = Lap {
            wall: f64::INFINITY,
            cpu: f64::INFINITY,
        };
        for _ in 0..BATCHES {
            let (began, spent) = (Instant::now(), process_time());
            (self.run)(self.batch);
            let wall = began.elapsed();
            (self.rest)();
            let cpu = process_time() - spent;
            let each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(self.batch);
            best.wall = best.wall.min(each(wall));
            best.cpu = best.cpu.min(each(cpu));
        }
        best
    }

    /// The median over rounds of this case's figure to the baseline's.
    fn beside(&self, baseline: &Self, figure: impl Fn(&Lap) -> f64) -> f64 {
        let rounds = self.laps.iter().zip(&baseline.laps);
        median(rounds.map(|(lap, base)| figure(lap) / figure(base)))
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What all threads of the process have worked.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
