//! A run, in which each process of this program plays a role. The measuring process starts these
//! processes, waits for them, and ends them.
//!
//! The measuring process sleeps during a run. It ends all roles if one of them ends irregularly, or
//! if the run takes too long.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::task::{Role, TASK, Task, iceoryx_prefix, now};
use crate::measure::Values;

/// Time after which a run counts as hanging.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// A folder in shared memory. Dropping this value removes the folder, and the files that iceoryx2
/// leaves beside it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> io::Result<Folder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("slipring-peers-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = Path::new("/dev/shm").join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let prefix = iceoryx_prefix(&self.0);
        let beside = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        for file in beside.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix)) {
            let _ = fs::remove_file(file.path());
        }
    }
}

/// The processes of a run. Dropping this value ends and reaps all of them.
pub struct Roles {
    children: Vec<(Role, Child)>,
    /// Output of each role, once the role has closed it.
    answers: Receiver<(Role, String)>,
}

impl Roles {
    /// Starts a process for each role.
    pub fn start(task: &Task, roles: &[Role]) -> Result<Roles, String> {
        let (to, answers) = channel();
        let mut started = Roles { children: Vec::new(), answers };
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        for &role in roles {
            let task = serde_json::to_string(&Task { role, ..task.clone() });
            let mut command = Command::new(&program);
            command.env(TASK, task.map_err(|error| error.to_string())?);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            let child = command.spawn();
            let mut child = child.map_err(|error| format!("the {}: {error}", role.name()))?;
            let output = child.stdout.take();
            started.children.push((role, child));
            let to = to.clone();
            // This thread ends when the process ends.
            thread::spawn(move || {
                let mut text = String::new();
                let _ = output.map(|mut output| output.read_to_string(&mut text));
                let _ = to.send((role, text));
            });
        }
        Ok(started)
    }

    /// Kills a role's process. Returns the time just before the signal.
    pub fn kill(&mut self, role: Role) -> io::Result<u64> {
        let child = self.children.iter_mut().find(|(of, _)| *of == role);
        let begin = now();
        child.map_or(Ok(()), |(_, child)| child.kill())?;
        Ok(begin)
    }

    /// Waits until a killed role is dead.
    pub fn await_death(&mut self, role: Role) -> Result<(), String> {
        let child = self.children.iter_mut().find(|(of, _)| *of == role);
        let waited = child.map_or(Ok(()), |(_, child)| child.wait().map(drop));
        waited.map_err(|error| error.to_string())
    }

    /// Waits until all roles have ended. The roles in `killed` were killed, and all others must end
    /// regularly. Returns the values of these others.
    pub fn finish(mut self, killed: &[Role]) -> Result<Values, String> {
        let limit = Instant::now() + RUN_LIMIT;
        let mut values = Values::new();
        for _ in 0..self.children.len() {
            match self.answers.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok((role, text)) if !killed.contains(&role) => {
                    values.extend(self.end(role, &text)?)
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("no end within {} s", RUN_LIMIT.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(values)
    }

    /// Sleeps until `reached` returns true. Fails if a role ends before that.
    pub fn until(&mut self, what: &str, mut reached: impl FnMut() -> bool) -> Result<(), String> {
        let limit = Instant::now() + RUN_LIMIT;
        while !reached() {
            if let Ok((role, text)) = self.answers.recv_timeout(Duration::from_millis(1)) {
                self.end(role, &text)?;
                return Err(format!("the {} ended before {what}", role.name()));
            }
            if Instant::now() > limit {
                return Err(format!("not {what} within {} s", RUN_LIMIT.as_secs()));
            }
        }
        Ok(())
    }

    /// Returns the values of a role that has closed its output.
    fn end(&mut self, role: Role, text: &str) -> Result<Values, String> {
        let child = self.children.iter_mut().find(|(of, _)| *of == role);
        let status = child.map(|(_, child)| child.wait());
        match status {
            Some(Ok(status)) if status.success() => parse(text)
                .ok_or_else(|| format!("the {}'s process answered `{text}`", role.name())),
            Some(Ok(status)) => Err(format!("the {}'s process ended early, {status}", role.name())),
            Some(Err(error)) => Err(format!("the {}'s process: {error}", role.name())),
            None => Err(format!("no {}", role.name())),
        }
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Renders a role's values as `ok`, followed by the metric and the number of each value.
pub fn render(values: &Values) -> String {
    let values = values.iter().map(|(metric, value)| format!(" {metric} {value}"));
    format!("ok{}", values.collect::<String>())
}

fn parse(text: &str) -> Option<Values> {
    let mut words = text.split_whitespace();
    words.next().filter(|word| *word == "ok")?;
    let mut values = Values::new();
    while let Some(metric) = words.next() {
        let metric = ["ns", "p50", "p99"].into_iter().find(|known| *known == metric)?;
        values.push((metric, words.next()?.parse().ok()?));
    }
    Some(values)
}
