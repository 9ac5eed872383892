//! One server as a child process.

use std::{
    env,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{
    binary,
    host::{HOST, free_port, wait_for},
    options::Options,
};

/// Time limit for a server's start and for its orderly end.
const LIMIT: Duration = Duration::from_secs(20);
/// Greatest number of ports that a start tries. Another process may take a free port first.
const PORTS: usize = 5;

/// A running server, or a killed one that can be started again.
///
/// Dropping the handle kills the process and deletes the folder, unless [`Options`] say otherwise.
/// If the test process itself is killed, a shell that waits for the test process's end kills the
/// server; the folder is left.
///
/// ```no_run
/// use slipring_nats_server::{Client, Options, Server};
///
/// # fn main() -> std::io::Result<()> {
/// let mut server = Server::start(Options::new())?;
/// let mut client = Client::connect(server.port(), None)?;
/// client.create_stream(serde_json::json!({ "name": "S", "subjects": ["s.>"] }))?;
/// server.kill()?;
/// server.restart()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    options: Options,
    name: String,
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    /// `None` while the server is killed.
    child: Option<Child>,
    /// Shell that kills the server if the test process ends and leaves the server running.
    guard: Option<Child>,
}

impl Server {
    /// Starts a server, and returns once it answers.
    ///
    /// # Errors
    ///
    /// There is no server program (see [`binary::find`]), or the server did not start within 20 s.
    /// The error contains the last lines of the server's log.
    pub fn start(options: Options) -> io::Result<Self> {
        let program = binary::find()?;
        let dir = match &options.dir {
            Some(dir) => {
                fs::create_dir_all(dir)?;
                dir.clone()
            }
            None => fresh_dir()?,
        };
        let name = options.name.clone().unwrap_or_else(|| format!("n{:08x}", fastrand::u32(..)));
        let mut server = Self { options, name, program, dir, port: 0, child: None, guard: None };
        match server.options.port {
            Some(fixed) => {
                server.port = fixed;
                server.launch()?;
            }
            None => with_free_ports(|| {
                server.port = free_port()?;
                server.launch()
            })?,
        }
        Ok(server)
    }

    /// Returns the port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL for clients: `nats://127.0.0.1:PORT`, or `tls://...` of a server with TLS.
    pub fn url(&self) -> String {
        format!("{}://{HOST}:{}", self.options.scheme(), self.port)
    }

    /// Returns the server's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of the store, the log and the configuration.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the text of the log since the last start.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.dir.join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the process id, unless the server is killed.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns whether the process runs. A paused process counts as running.
    pub fn is_running(&mut self) -> bool {
        let running = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !running {
            self.dismiss_guard();
        }
        running
    }

    /// Kills the process with SIGKILL and waits for its end. Does nothing if it is killed already.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.dismiss_guard();
        let Some(mut child) = self.child.take() else { return Ok(()) };
        // This fails only if the process has already ended by itself.
        let _ = child.kill();
        child.wait().map(|_| ())
    }

    /// Starts the server again with the same store and the same port. A running server is killed
    /// first.
    ///
    /// # Errors
    ///
    /// The server did not start within 20 s, e.g. because another process has taken the port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.launch()
    }

    /// Starts the process and waits until it answers.
    fn launch(&mut self) -> io::Result<()> {
        let (config, ports) = (self.dir.join("server.conf"), self.dir.join("ports"));
        fs::write(&config, self.options.config(&self.dir)?)?;
        if ports.exists() {
            fs::remove_dir_all(&ports)?;
        }
        fs::create_dir(&ports)?;
        let log = File::create(self.dir.join("server.log"))?;
        let mut command = self.command()?;
        let child = command
            .arg("-c")
            .arg(&config)
            .args(["-n", &self.name, "-a", HOST, "-p", &self.port.to_string()])
            .arg("--ports_file_dir")
            .arg(&ports)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pid = child.id();
        self.child = Some(child);
        self.guard = if self.options.detached { None } else { guard(pid) };
        let ready = wait_for(&format!("start of nats-server {pid}"), LIMIT, || {
            if !self.is_running() {
                return Ok(false);
            }
            // The server writes the file of its ports once it listens.
            if fs::read_dir(&ports)?.next().is_none() {
                return Err(io::Error::other("no file of ports"));
            }
            self.check_info()?;
            Ok(true)
        });
        if matches!(ready, Ok(true)) {
            return Ok(());
        }
        let why = ready.err().map_or("it ended by itself".to_owned(), |error| error.to_string());
        self.kill()?;
        Err(io::Error::other(format!("nats-server did not start: {why}\n{}", tail(&self.log()))))
    }

    /// Returns the command that starts the server. The caller adds the server's arguments.
    fn command(&self) -> io::Result<Command> {
        let mut command = match self.options.disk {
            None => Command::new(&self.program),
            Some(bytes) => {
                let store = self.dir.join("store");
                fs::create_dir_all(&store)?;
                let script = "mount -t tmpfs -o size=$0 tmpfs \"$1\" && shift && exec \"$@\"";
                let mut command = Command::new("unshare");
                command.args(["-rm", "sh", "-c", script, &bytes.to_string()]);
                command.arg(&store).arg(&self.program);
                command
            }
        };
        #[cfg(unix)]
        if self.options.detached {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        Ok(command)
    }

    /// Checks that this server answers at the port.
    fn check_info(&self) -> io::Result<()> {
        let stream = TcpStream::connect((HOST, self.port))?;
        if !self.options.sends_plain_info() {
            return Ok(());
        }
        stream.set_read_timeout(Some(LIMIT))?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        if line.starts_with("INFO ") && line.contains(&format!("{:?}", self.name)) {
            Ok(())
        } else {
            Err(io::Error::other(format!("the port answers with {line:?}")))
        }
    }
}

/// Signals to the process.
impl Server {
    /// Stops the process with SIGSTOP: connections stay open, and nothing answers. Returns once all
    /// of its threads have stopped.
    ///
    /// # Errors
    ///
    /// The server is not running, or the system has no signals.
    pub fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::Stop)?;
        self.wait_until_stopped()
    }

    /// Lets a paused process continue.
    ///
    /// # Errors
    ///
    /// The server is not running, or the system has no signals.
    pub fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::Continue)
    }

    /// Makes the server announce to its clients that it will shut down (SIGUSR2, "lame duck mode").
    /// The settings `lame_duck_duration` and `lame_duck_grace_period` say when it then shuts down.
    ///
    /// # Errors
    ///
    /// The server is not running, or the system has no signals.
    pub fn lame_duck(&mut self) -> io::Result<()> {
        self.signal(Signal::LameDuck)
    }

    /// Ends the process in an orderly way (SIGTERM) and waits for at most 20 s, then kills it.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn stop(&mut self) -> io::Result<()> {
        if self.is_running() && self.signal(Signal::Terminate).is_ok() {
            let _ = wait_for("end of nats-server", LIMIT, || match self.is_running() {
                true => Err(io::Error::other("it runs")),
                false => Ok(()),
            });
        }
        self.kill()
    }

    /// Waits until the process has stopped. If the process ends instead, its exit status is left
    /// for the next call that waits for its end.
    #[cfg(unix)]
    fn wait_until_stopped(&self) -> io::Result<()> {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let Some(child) = &self.child else { return Ok(()) };
        let of = WaitId::Pid(Pid::from_child(child));
        waitid(of, WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        Ok(())
    }

    #[cfg(not(unix))]
    fn wait_until_stopped(&self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(unix)]
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        use rustix::process::{self, Pid, kill_process};
        let running = self.is_running();
        let ended = || io::Error::new(io::ErrorKind::NotFound, "the server does not run");
        // The child was not waited for yet, so it keeps its process id, and no other process gets
        // the signal.
        let pid = Pid::from_child(self.child.as_ref().filter(|_| running).ok_or_else(ended)?);
        let signal = match signal {
            Signal::Stop => process::Signal::STOP,
            Signal::Continue => process::Signal::CONT,
            Signal::LameDuck => process::Signal::USR2,
            Signal::Terminate => process::Signal::TERM,
        };
        Ok(kill_process(pid, signal)?)
    }

    #[cfg(not(unix))]
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("no signal {signal:?} here")))
    }
}

/// A signal that a server knows.
#[derive(Clone, Copy, Debug)]
enum Signal {
    Stop,
    Continue,
    LameDuck,
    Terminate,
}

impl Server {
    /// Ends the guard before the server's process id can go to another process.
    fn dismiss_guard(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

/// Starts a shell that kills the server process `pid` when the test process ends for any reason:
/// the end of the test process ends the shell's standard input. If the system has no shell, there
/// is no guard.
fn guard(pid: u32) -> Option<Child> {
    let script = "read -r line; kill -9 \"$0\"";
    Command::new("sh")
        .args(["-c", script, &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()
}

/// Returns whether this user may make the namespaces that [`Options::disk`] needs.
pub fn has_namespaces() -> bool {
    let mut command = Command::new("unshare");
    let script = ["-rm", "sh", "-c", "mount -t tmpfs tmpfs /tmp"];
    command.args(script).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.options.detached {
            return;
        }
        let _ = self.kill();
        if !self.options.keep_dir {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Makes a new folder below the system's folder of temporary files.
fn fresh_dir() -> io::Result<PathBuf> {
    loop {
        let name = format!("slipring-nats-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let dir = env::temp_dir().join(name);
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Calls `start`, which chooses free ports, and calls it again if a port was taken meanwhile.
pub(crate) fn with_free_ports<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..PORTS {
        match start() {
            Err(error) if is_taken(&error) => {}
            started => return started,
        }
    }
    start()
}

/// Returns whether a server failed to start because its port was taken.
fn is_taken(error: &io::Error) -> bool {
    error.to_string().contains("address already in use")
}

/// Returns the last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
