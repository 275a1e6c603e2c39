//! The helper of hosts whose own binary cannot be one, such as tests.

fn main() -> std::process::ExitCode {
    bailiwick_exec::init();
    std::process::ExitCode::from(2)
}
