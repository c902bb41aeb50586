//! Server processes that end when the test process does, however it ends.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

/// A server under a shell that kills it as soon as our end of a pipe is closed.
#[derive(Debug)]
pub struct Server {
    shell: Child,
}

impl Server {
    /// Starts `program` with `args`; its output goes to `log`.
    pub fn start(program: &str, args: &[&OsStr], log: &std::path::Path) -> Self {
        // The last line from the pipe is the signal; a pipe that closes without one means SIGKILL.
        let script = r#"log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & p=$!
            sig=KILL; while read -r s; do sig=$s; done; kill -$sig $p; wait $p"#;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg("server").arg(log).arg(program).args(args);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh starts");
        Self { shell }
    }

    /// Ends it with SIGTERM and waits.
    pub fn stop(mut self) {
        self.end("TERM");
    }

    /// Ends it with SIGKILL and waits.
    pub fn kill(mut self) {
        self.end("KILL");
    }

    fn end(&mut self, signal: &str) {
        use std::io::Write as _;
        if let Some(mut pipe) = self.shell.stdin.take() {
            let _ = writeln!(pipe, "{signal}");
        }
        let _ = self.shell.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end("KILL");
    }
}
