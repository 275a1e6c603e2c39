//! How the cost of an operation grows with what it works on. Prints each curve, and how fast it grows at its end.
//!
//! `--plots DIRECTORY` also writes one SVG file per axis; names of axes, such as `globs`, choose some.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "benchmarks panic on failure and print their results"
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailiwick_benches::brief;

mod axes;
mod plot;

/// The number of batches of a point. The best one counts.
const BATCHES: usize = 5;
/// The time of a batch, at least.
const BATCH: Duration = Duration::from_millis(20);

/// What grows, and the operations whose cost may depend on it.
struct Axis {
    name: &'static str,
    title: &'static str,
    /// What grows, with its unit.
    unit: &'static str,
    curves: Vec<Curve>,
}

/// The cost of one operation.
struct Curve {
    name: &'static str,
    points: Vec<Point>,
}

#[derive(Clone, Copy)]
struct Point {
    size: f64,
    micros: f64,
}

impl Axis {
    fn new(name: &'static str, title: &'static str, unit: &'static str) -> Self {
        let curves = Vec::new();
        Self {
            name,
            title,
            unit,
            curves,
        }
    }

    /// Measures `run`, which repeats an operation the given number of times, at one size.
    fn measure(&mut self, curve: &'static str, size: usize, run: impl FnMut(u32)) {
        let point = Point {
            size: size as f64,
            micros: micros(run),
        };
        match self.curves.iter_mut().find(|known| known.name == curve) {
            Some(known) => known.points.push(point),
            None => self.curves.push(Curve {
                name: curve,
                points: vec![point],
            }),
        }
    }

    fn print(&self) {
        println!("\n{}", self.title);
        for curve in &self.curves {
            println!("  {}: {}", curve.name, curve.growth());
            for Point { size, micros } in &curve.points {
                println!("    {size:>10} {:<12} {micros:>12.2} us", self.unit);
            }
        }
    }
}

impl Curve {
    /// How the cost grows between the two largest sizes.
    fn growth(&self) -> String {
        let Some([before, last]) = self.points.last_chunk() else {
            return String::from("one size");
        };
        let exponent = (last.micros / before.micros).ln() / (last.size / before.size).ln();
        format!("grows with the power {exponent:.2} of the size at the end")
    }
}

/// The microseconds of one operation.
fn micros(mut run: impl FnMut(u32)) -> f64 {
    let mut time = |times: u32| {
        let began = Instant::now();
        run(times);
        began.elapsed()
    };
    let first = time(1);
    if brief() {
        return first.as_secs_f64() * 1e6;
    }
    // The first one may be much slower than the others.
    let mut times = 1;
    while times < 1 << 20 && time(times) < BATCH {
        times *= 2;
    }
    let best = (0..BATCHES).map(|_| time(times)).min().unwrap_or_default();
    best.as_secs_f64() * 1e6 / f64::from(times)
}

fn main() {
    // The sandbox of commands starts this program again.
    bailiwick_exec::init();
    let mut arguments = std::env::args().skip(1);
    let (mut plots, mut chosen) = (None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--plots" => plots = arguments.next().map(PathBuf::from),
            // `cargo bench` adds it.
            "--bench" => {}
            _ => chosen.push(argument),
        }
    }
    let is_axis = |chosen: &String| axes::ALL.iter().any(|(name, _)| chosen == name);
    let unknown = chosen.iter().find(|chosen| !is_axis(chosen));
    assert_eq!(unknown, None, "no axis has this name");
    if let Some(directory) = &plots {
        // Before the measurements, which take minutes. `cargo bench` starts this in the folder of the package.
        std::fs::create_dir_all(directory).unwrap();
    }
    for (name, measure) in axes::ALL {
        if !chosen.is_empty() && !chosen.iter().any(|chosen| chosen == name) {
            continue;
        }
        let axis = measure();
        axis.print();
        if let Some(directory) = &plots {
            plot::write(&axis, &directory.join(format!("{}.svg", axis.name))).unwrap();
        }
    }
}
