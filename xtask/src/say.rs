//! Prints lines for the reader. If standard output is closed or full, the lines are lost, and
//! nothing else changes.

/// Prints a line as `println!` does, and ignores a closed or full standard output.
macro_rules! say {
    ($($line:tt)*) => { $crate::say::line(format_args!($($line)*)) };
}
pub(crate) use say;

/// Prints `line`.
pub fn line(line: std::fmt::Arguments<'_>) {
    #[cfg(not(test))]
    let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{line}\n"));
    #[cfg(test)]
    #[allow(clippy::print_stdout, reason = "the test harness captures it")]
    {
        println!("{line}");
    }
}
