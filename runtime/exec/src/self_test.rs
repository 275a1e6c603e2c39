//! Tests on this machine whether a sandbox confines a program that attacks it.
#![expect(
    clippy::disallowed_methods,
    reason = "creates and reads files of its own in a temporary directory"
)]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bailiwick::worker::{LayerState, LayerStatus};
use serde::Serialize;

use crate::error::ExecError;
use crate::helper::{Findings, NAME, PROBE, Targets};
use crate::process::{Helper, Process, Stdio, spawn};
use crate::spec::{Layer, Mount, SandboxSpec};

/// The number of processes that the program of the self-test may have.
const PROCESSES: u64 = 301;
/// The highest process number that the program of the self-test may have itself.
const OWN_PROCESSES: u32 = 1024;
/// Where the libraries of the helper are on all common systems.
const LIBRARIES: [&str; 7] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
];

/// The result of [`self_test`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SelfTest {
    /// The result for each layer.
    pub layers: Vec<(Layer, LayerState)>,
}

impl SelfTest {
    /// Checks that no layer is broken, and that only `optional` ones are missing. A host that does not run a program if
    /// this fails never runs one with less protection than it expects. [`Layer::Overlay`] may always be missing, since a
    /// sandbox that needs it is not started without it.
    ///
    /// # Errors
    /// [`ExecError::Broken`] or [`ExecError::Missing`].
    pub fn require(&self, optional: &[Layer]) -> Result<(), ExecError> {
        for (layer, state) in &self.layers {
            let layer = *layer;
            match state {
                LayerState::Broken(reason) => {
                    let reason = reason.clone();
                    return Err(ExecError::Broken { layer, reason });
                }
                LayerState::Missing(reason)
                    if layer != Layer::Overlay && !optional.contains(&layer) =>
                {
                    let reason = reason.clone();
                    return Err(ExecError::Missing { layer, reason });
                }
                LayerState::Missing(_) | LayerState::Enforced | LayerState::NotTested => {}
            }
        }
        Ok(())
    }

    /// What workers report about the layers.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = LayerStatus> {
        let layers = self.layers.iter();
        layers.map(|(layer, state)| LayerStatus::new("commands", layer.to_string(), state.clone()))
    }

    /// All layers are missing for this reason, except those with a reason of their own.
    fn missing(reason: &str, known: &[(Layer, String)]) -> Self {
        let reason_for = |layer| {
            let known = known.iter().find(|(known, _)| *known == layer);
            known.map_or_else(|| reason.to_owned(), |(_, reason)| reason.clone())
        };
        let layers = Layer::ALL.map(|layer| (layer, LayerState::Missing(reason_for(layer))));
        Self {
            layers: layers.into(),
        }
    }

    fn new(present: &[Layer], missing: &[(Layer, String)], findings: &Findings) -> Self {
        let state = |layer: Layer| {
            if !present.contains(&layer) {
                let mut reasons = missing.iter().filter(|(missing, _)| *missing == layer);
                let reason = reasons.next().map(|(_, reason)| reason.clone());
                return LayerState::Missing(reason.unwrap_or_default());
            }
            let through = findings.iter().filter(|(_, by)| by.contains(&layer));
            let through: Vec<_> = through.map(|(what, _)| what.as_str()).collect();
            if through.is_empty() {
                LayerState::Enforced
            } else {
                LayerState::Broken(through.join(", "))
            }
        };
        let layers = Layer::ALL.map(|layer| (layer, state(layer)));
        Self {
            layers: layers.into(),
        }
    }
}

/// Runs a program in a sandbox that tries to break out of it, and reports for each layer whether it held. The program is
/// the helper itself, so no program of this machine is needed.
pub async fn self_test(helper: &Helper) -> SelfTest {
    let failed = |error: &dyn std::error::Error| {
        let reasons = std::iter::successors(Some(error), |error| error.source());
        let reasons: Vec<_> = reasons.map(ToString::to_string).collect();
        SelfTest::missing(
            &format!("the self-test failed: {}", reasons.join(": ")),
            &[],
        )
    };
    let folder = match TestFolder::create() {
        Ok(folder) => folder,
        Err(error) => return failed(&error),
    };
    let mut known = Vec::new();
    let mut result = run(&folder, helper, true).await;
    if let Err(ExecError::Missing {
        layer: Layer::Namespaces,
        reason,
    }) = result
    {
        known.push((Layer::Namespaces, reason));
        known.push((Layer::Overlay, "it needs namespaces".to_owned()));
        result = run(&folder, helper, false).await;
    }
    match result {
        Ok((process, findings)) => {
            known.extend_from_slice(process.missing());
            SelfTest::new(process.layers(), &known, &findings)
        }
        Err(ExecError::Missing { layer, reason }) => {
            known.push((layer, reason));
            SelfTest::missing("not tested, since no sandbox can be started", &known)
        }
        Err(error) => failed(&error),
    }
}

/// Runs the program in a sandbox with or without namespaces.
async fn run(
    folder: &TestFolder,
    helper: &Helper,
    namespaces: bool,
) -> Result<(Process, Findings), ExecError> {
    let spec = folder.spec(helper, namespaces)?;
    let (mut output, writer) = io::pipe()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let stdio = Stdio {
        stdin: null.try_clone()?.into(),
        stdout: writer.into(),
        stderr: null.into(),
    };
    let mut process = spawn(&spec, stdio, helper).await?;
    let exit = process.wait().await?;
    // Nothing runs any more, so the pipe is closed; otherwise reading would block.
    rustix::io::ioctl_fionbio(&output, true).map_err(io::Error::from)?;
    let mut text = Vec::new();
    let survived = match output.read_to_end(&mut text) {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Err(error) => return Err(error.into()),
    };
    if !exit.status.success() {
        let ended = format!("the program of the self-test ended with {}", exit.status);
        return Err(io::Error::other(ended).into());
    }
    let mut findings: Findings = serde_json::from_slice(&text).map_err(io::Error::from)?;
    if namespaces && fs::read_to_string(folder.apart().join(TestFolder::NAME))? != folder.secret {
        let what = "change a file whose changes are kept apart";
        findings.push((what.to_owned(), vec![Layer::Overlay]));
    }
    if survived {
        findings.push(("leave a process running".to_owned(), vec![Layer::Cleanup]));
    }
    Ok((process, findings))
}

/// A private temporary directory with the files that are attacked. It is removed on drop.
struct TestFolder {
    path: PathBuf,
    secret: String,
}

impl TestFolder {
    const NAME: &str = "secret";

    fn create() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut random = [0_u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let secret = format!("{:032x}", u128::from_be_bytes(random));
        let name = format!("bailiwick-exec-{}-{number}-{secret}", std::process::id());
        let path = fs::canonicalize(std::env::temp_dir())?.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Self { path, secret };
        for path in [folder.work(), folder.apart()] {
            fs::create_dir(path)?;
        }
        for path in [folder.path.clone(), folder.work(), folder.apart()] {
            fs::write(path.join(Self::NAME), &folder.secret)?;
        }
        Ok(folder)
    }

    fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// The directory whose changes are kept apart.
    fn apart(&self) -> PathBuf {
        self.path.join("apart")
    }

    /// A sandbox in which the helper attacks the files of this directory.
    fn spec(&self, helper: &Helper, namespaces: bool) -> io::Result<SandboxSpec> {
        let helper = fs::canonicalize(helper.program())?;
        let mut mounts = libraries()?;
        let is_mounted =
            |mount: &Mount| matches!(mount, Mount::Host { at, .. } if helper.starts_with(at));
        if !mounts.iter().any(is_mounted) {
            mounts.push(of_host(&helper, false));
        }
        mounts.push(of_host(&self.work(), true));
        if namespaces {
            let at = self.work().join(Self::NAME);
            mounts.push(Mount::Hidden { at });
            mounts.push(Mount::Overlay {
                source: self.apart(),
                at: self.apart(),
                writable: true,
                identity: None,
            });
        }
        let process = std::process::id();
        let process = (process > OWN_PROCESSES).then(|| process.cast_signed());
        let targets = Targets {
            work: self.work(),
            outside: self.path.clone(),
            apart: namespaces.then(|| self.apart()),
            name: Self::NAME.to_owned(),
            secret: self.secret.clone(),
            process,
            namespaces: own_namespaces()?,
            helper,
        };
        let path = targets.helper.to_str().map(str::to_owned);
        let path = path.ok_or_else(|| io::Error::other("the path of the helper is not UTF-8"))?;
        let argv = vec![path, PROBE.to_owned(), serde_json::to_string(&targets)?];
        let mut spec = SandboxSpec::new(argv, self.work());
        spec.arg0 = Some(NAME.to_owned());
        spec.mounts = mounts;
        spec.limits.processes = Some(PROCESSES);
        spec.optional = Layer::ALL.to_vec();
        if namespaces {
            spec.optional.retain(|layer| *layer != Layer::Namespaces);
        }
        Ok(spec)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        // A directory in the temporary directory that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The directories in which the system loads libraries, as far as they exist.
fn libraries() -> io::Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for path in LIBRARIES.map(Path::new) {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => mounts.push(Mount::Link {
                at: path.to_owned(),
                target: fs::read_link(path)?,
            }),
            Ok(_) => mounts.push(of_host(path, false)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(mounts)
}

fn of_host(path: &Path, writable: bool) -> Mount {
    Mount::Host {
        source: path.to_owned(),
        at: path.to_owned(),
        writable,
        identity: None,
    }
}

/// The names and identities of the namespaces of this process.
fn own_namespaces() -> io::Result<Vec<(String, PathBuf)>> {
    let names = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
    let identity = |name: &str| {
        let path = format!("/proc/self/ns/{name}");
        Ok((name.to_owned(), fs::read_link(path)?))
    };
    names.into_iter().map(identity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_that_gets_through_breaks_the_layers_that_should_stop_it() {
        let findings = vec![(
            "read a file outside".to_owned(),
            vec![Layer::Namespaces, Layer::Landlock],
        )];
        let missing = [(Layer::Namespaces, "forbidden".to_owned())];
        let result = SelfTest::new(&[Layer::Landlock, Layer::Seccomp], &missing, &findings);
        let state = |layer| {
            let mut layers = result.layers.iter();
            layers.find(|(it, _)| *it == layer).unwrap().1.clone()
        };
        assert_eq!(
            state(Layer::Namespaces),
            LayerState::Missing("forbidden".to_owned())
        );
        assert_eq!(
            state(Layer::Landlock),
            LayerState::Broken("read a file outside".to_owned())
        );
        assert_eq!(state(Layer::Seccomp), LayerState::Enforced);
    }

    #[test]
    fn broken_layer_is_refused_even_if_it_is_optional() {
        let result = |state| SelfTest {
            layers: vec![(Layer::Landlock, state)],
        };
        let broken = result(LayerState::Broken("read a file outside".to_owned()));
        let error = broken.require(&Layer::ALL).unwrap_err();
        assert!(matches!(error, ExecError::Broken { .. }), "{error}");
        let missing = result(LayerState::Missing("an old kernel".to_owned()));
        let error = missing.require(&[Layer::Seccomp]).unwrap_err();
        assert!(matches!(error, ExecError::Missing { .. }), "{error}");
        missing.require(&[Layer::Landlock]).unwrap();
        result(LayerState::Enforced).require(&[]).unwrap();
    }
}
