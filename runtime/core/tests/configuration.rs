//! Tests of building a runtime and of unsafe configurations.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(clippy::disallowed_methods, reason = "tests create directories")]

use bailiwick::config::{ConfigSource, ConfigSources, RootConfig};
use bailiwick::permission::GrantStore;
use bailiwick::policy::Authority;
use bailiwick::root::RootError;
use bailiwick::{
    BuildError, BuildFault, Call, CallError, CallMeta, Code, Config, JsonLines, Outcome, Policy,
    Reply, Runtime, RuntimeBuilder, ToolSet, ToolSpec, Verdict, VirtualPath, WorkerSpec,
};
use serde_json::{Value, json};

type Built = Result<(Runtime, bailiwick::GrantAuthority), BuildError>;

/// The only fault of a runtime that was not built.
#[track_caller]
fn only_fault(built: &Built) -> &BuildFault {
    match built {
        Err(error) => {
            assert_eq!(error.faults().len(), 1, "{error}");
            &error.faults()[0]
        }
        Ok(_) => panic!("it was built"),
    }
}

#[track_caller]
fn assert_unsafe_root(built: &Built, expected: &str) {
    match only_fault(built) {
        BuildFault::Root(RootError::Unsafe { reason, .. }) => {
            assert!(reason.contains(expected), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

fn mounted(builder: RuntimeBuilder, mount: &str, host: &std::path::Path) -> RuntimeBuilder {
    builder.root_with(
        RootConfig::new(VirtualPath::parse(mount, None).unwrap()),
        host,
        false,
    )
}

#[tokio::test]
async fn overlapping_roots_are_rejected_unless_mounted_at_their_nested_path() {
    let world = tempfile::tempdir().unwrap();
    let inner = world.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let twice = Runtime::builder()
        .root("a", world.path())
        .root("b", world.path())
        .build()
        .await;
    assert_unsafe_root(&twice, "other names");
    let nested = Runtime::builder()
        .root("a", world.path())
        .root("b", &inner)
        .build()
        .await;
    assert_unsafe_root(&nested, "other names");
    let before = Runtime::builder()
        .root("b", &inner)
        .root("a", world.path())
        .build()
        .await;
    assert_unsafe_root(&before, "other names");
    let within = mounted(
        mounted(Runtime::builder(), "/a", world.path()),
        "/a/inner",
        &inner,
    );
    assert!(within.build().await.is_ok());
}

#[tokio::test]
async fn root_containing_the_grant_store_is_rejected() {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().join("root");
    let deeper = root.join("deeper");
    std::fs::create_dir_all(&deeper).unwrap();
    for folder in [&root, &deeper] {
        let within = GrantStore::open(folder.join("grants")).unwrap();
        let builder = Runtime::builder().root("r", &root).grant_store(within);
        assert_unsafe_root(&builder.build().await, "workers must not reach");
    }
    let beside = GrantStore::open(world.path().join("grants")).unwrap();
    let builder = Runtime::builder().root("r", &root).grant_store(beside);
    assert!(builder.build().await.is_ok());
}

#[tokio::test]
async fn root_containing_the_audit_log_is_rejected() {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let within = JsonLines::create(root.join("audit.jsonl")).unwrap();
    assert_unsafe_root(
        &Runtime::builder()
            .root("r", &root)
            .audit(within)
            .build()
            .await,
        "audit log",
    );
    let beside = JsonLines::create(world.path().join("audit.jsonl")).unwrap();
    assert!(
        Runtime::builder()
            .root("r", &root)
            .audit(beside)
            .build()
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn root_containing_a_kept_out_file_is_rejected() {
    let world = tempfile::tempdir().unwrap();
    let (root, beside) = (world.path().join("root"), world.path().join("beside"));
    for dir in [&root, &beside] {
        std::fs::create_dir(dir).unwrap();
    }
    let policy = root.join("policy.json");
    std::fs::write(&policy, "{}").unwrap();
    let keeping = |dir| Runtime::builder().keep_out(&policy).root("r", dir).build();
    assert_unsafe_root(&keeping(&root).await, "must not reach");
    assert!(keeping(&beside).await.is_ok());
    let absent = Runtime::builder().keep_out(root.join("absent"));
    let built = absent.root("r", &beside).build().await;
    assert!(matches!(only_fault(&built), BuildFault::KeptOut { .. }));
}

#[tokio::test]
async fn grants_never_cover_the_audit_log_or_grant_stores() {
    let world = tempfile::tempdir().unwrap();
    let world = world.path().canonicalize().unwrap();
    for dir in ["root", "logs"] {
        std::fs::create_dir(world.join(dir)).unwrap();
    }
    let log = JsonLines::create(world.join("logs/audit.jsonl")).unwrap();
    let store = GrantStore::open(world.join("logs/grants")).unwrap();
    // Nothing of it exists yet.
    let theirs = world.join("logs/theirs");
    let tools = bailiwick::ToolSet::new().reader(Look);
    let limits = bailiwick::permission::AskLimits {
        per_minute: 100,
        ..bailiwick::permission::AskLimits::default()
    };
    let (runtime, _grants) = Runtime::builder()
        .root("r", world.join("root"))
        .grantable("read:file")
        .audit(log)
        .grant_store(store)
        .keep_out_grants(&theirs)
        .tools(tools)
        .approver(bailiwick::Scripted::new().allow(
            "read".parse().unwrap(),
            bailiwick::permission::Lifetime::Once,
        ))
        .asks(limits, std::time::Duration::from_secs(60))
        .build()
        .await
        .unwrap();
    let spec = bailiwick::WorkerSpec::new("main").policy(bailiwick::Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    for (path, opens) in [
        ("logs/other", true),
        ("logs/audit.jsonl", false),
        ("logs/audit.jsonl.00000001", false),
        ("logs/audit.jsonl.2", false),
        ("logs/audit.jsonl.bak", true),
        ("logs/grants", false),
        ("logs/grants.lock", false),
        ("logs/grants.new", false),
        ("logs/grants.corrupt", false),
        ("logs/grants.corrupt-2", false),
        ("logs/grants.corrupt-x", true),
        ("logs/theirs", false),
        ("logs/theirs.corrupt", false),
        ("logs/theirs.lock", false),
        ("logs/theirs.new", false),
        ("logs/theirs.other", true),
        ("logs", false),
    ] {
        let path = world.join(path);
        let answer = worker
            .call("look", serde_json::json!({ "path": path }))
            .await;
        assert_eq!(answer.is_ok(), opens, "{path:?}: {answer:?}");
    }
}

#[tokio::test]
async fn host_root_and_kernel_file_systems_are_rejected_as_roots() {
    for host in ["/", "/proc", "/sys", "/proc/self"] {
        let built = Runtime::builder().root("r", host).build().await;
        assert!(matches!(only_fault(&built), BuildFault::Root(_)), "{host}");
    }
}

#[tokio::test]
async fn each_invalid_builder_argument_has_its_own_fault() {
    let world = tempfile::tempdir().unwrap();
    let bad = Runtime::builder().root("", world.path()).build().await;
    assert!(matches!(only_fault(&bad), BuildFault::Mount(..)));
    for name in ["/repo", "a/b"] {
        let bad = Runtime::builder().root(name, world.path()).build().await;
        let error = only_fault(&bad);
        assert!(matches!(error, BuildFault::RootName(_)), "{error}");
        assert!(error.to_string().contains("is a path"), "{error}");
    }
    let bad = Runtime::builder()
        .root("a", world.path())
        .grantable("fly:file")
        .build()
        .await;
    assert!(matches!(only_fault(&bad), BuildFault::Pattern(_)));
    let absent = Runtime::builder()
        .root("a", world.path().join("absent"))
        .build()
        .await;
    assert!(matches!(
        only_fault(&absent),
        BuildFault::Root(RootError::Open { .. })
    ));
}

/// Builds a runtime whose roots are mounted at their own host paths.
async fn configured(config: serde_json::Value) -> Built {
    let sources = bailiwick::config::ConfigSources::new();
    let sources = sources.with(bailiwick::config::ConfigSource::Initialize, config)?;
    let config = sources.effective()?.config;
    let tools = bailiwick::ToolSet::new().reader(Look);
    let builder = Runtime::builder().configured(config).tools(tools);
    builder.build().await
}

#[track_caller]
fn assert_invalid_field(result: Built, field: &str) {
    let data = result.unwrap_err().data("initialize").unwrap();
    assert_eq!(
        data,
        serde_json::json!({
            "kind": "policy_invalid", "code": "POLICY_INVALID", "field": field, "layer": "initialize",
        })
    );
}

#[tokio::test]
async fn configured_root_is_mounted_at_its_lexical_path() {
    let world = tempfile::tempdir().unwrap();
    let (real, link) = (world.path().join("real"), world.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let dotted = format!("{}/../link/.", link.to_str().unwrap());
    let config = serde_json::json!({ "roots": [{ "path": dotted }] });
    let (runtime, _grants) = configured(config).await.unwrap();
    let spec = bailiwick::WorkerSpec::new("main").policy(bailiwick::Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    for (path, allowed) in [(link.join("x"), true), (real.join("x"), false)] {
        let answer = worker
            .call("look", serde_json::json!({ "path": path }))
            .await;
        assert_eq!(answer.is_ok(), allowed, "{answer:?}");
    }
}

#[tokio::test]
async fn unusable_configured_root_is_named_by_json_pointer() {
    let world = tempfile::tempdir().unwrap();
    let (real, link) = (world.path().join("real"), world.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    std::fs::write(world.path().join("file"), "").unwrap();
    let roots = |second: &std::path::Path| serde_json::json!({ "roots": [{ "path": real }, { "path": second }] });
    for second in [
        world.path().join("absent"),
        world.path().join("file"),
        link,
        real.clone(),
        "/".into(),
        "/proc".into(),
    ] {
        assert_invalid_field(configured(roots(&second)).await, "/roots/1/path");
    }
    let misread = serde_json::json!({ "roots": [{ "path": real, "access": "all" }] });
    let error = configured(misread).await.unwrap_err();
    assert_eq!(error.data("-").unwrap()["field"], "/roots/0/access");
    let beside = world.path().join("beside");
    std::fs::create_dir(&beside).unwrap();
    assert!(configured(roots(&beside)).await.is_ok());
}

#[tokio::test]
async fn root_containing_a_symlinked_kept_out_path_is_rejected() {
    let world = tempfile::tempdir().unwrap();
    let (root, beside) = (world.path().join("root"), world.path().join("beside.json"));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(&beside, "{}").unwrap();
    std::fs::write(root.join("within.json"), "{}").unwrap();
    std::os::unix::fs::symlink(&beside, root.join("link.json")).unwrap();
    let build = async |file: &std::path::Path| {
        Runtime::builder()
            .root("r", &root)
            .keep_out(file)
            .build()
            .await
    };
    assert_unsafe_root(
        &build(&root.join("within.json")).await,
        "keep that elsewhere",
    );
    assert_unsafe_root(&build(&root.join("link.json")).await, "keep that elsewhere");
    assert!(build(&beside).await.is_ok());
}

#[tokio::test]
async fn configuration_with_a_root_that_nothing_opens_is_rejected() {
    let world = tempfile::tempdir().unwrap();
    let path = VirtualPath::parse(world.path().to_str().unwrap(), None).unwrap();
    let config = || Config::new().root(RootConfig::new(path.clone()));
    let built = Runtime::builder().config(config()).build().await;
    match only_fault(&built) {
        fault @ BuildFault::Unopened(root) => {
            assert_eq!(*root, path);
            assert!(fault.to_string().contains("RuntimeBuilder::configured"));
        }
        other => panic!("{other:?}"),
    }
    let opened = Runtime::builder().configured(config());
    assert!(opened.build().await.is_ok());
}

#[tokio::test]
async fn builder_call_order_does_not_lose_restrictions() {
    let world = tempfile::tempdir().unwrap();
    let deny = || bailiwick::Policy::new().deny("read:file:/r/secret");
    let more = || bailiwick::Policy::new().deny("read:file:/r/other");
    let config = || bailiwick::Config::new().policy(bailiwick::Policy::new().deny("write:file"));
    let before = Runtime::builder()
        .policy(deny())
        .policy(more())
        .config(config());
    let after = Runtime::builder()
        .config(config())
        .policy(more())
        .policy(deny());
    for builder in [before, after] {
        let tools = bailiwick::ToolSet::new().reader(Look);
        let (runtime, _) = builder
            .root("r", world.path())
            .tools(tools)
            .build()
            .await
            .unwrap();
        let spec = bailiwick::WorkerSpec::new("main").policy(bailiwick::Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        for (path, allowed) in [("secret", false), ("other", false), ("plain", true)] {
            let answer = worker
                .call("look", serde_json::json!({ "path": path }))
                .await;
            assert_eq!(answer.is_ok(), allowed, "{path}: {answer:?}");
        }
    }
}

/// A tool that needs to read a path, but does not.
struct Look;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Target {
    path: String,
}

impl bailiwick::ReadTool for Look {
    type Args = Target;
    type Output = serde_json::Value;
    type Job = ();

    fn spec(&self) -> bailiwick::ToolSpec {
        bailiwick::ToolSpec::new("look", "Look", "Looks.")
    }

    fn prepare(
        &self,
        args: Target,
        names: &bailiwick::config::Namespace,
    ) -> Result<bailiwick::tool::Prepared<()>, bailiwick::CallError> {
        let path = names.path(&args.path)?;
        let needs = vec![bailiwick::Scope::file(bailiwick::Verb::Read, path)];
        Ok(bailiwick::tool::Prepared { needs, job: () })
    }

    fn read(
        &self,
        (): &(),
        _: &bailiwick::tool::ReadPermit,
    ) -> Result<bailiwick::Reply, bailiwick::tool::Interrupt> {
        Ok(bailiwick::Reply::text("looked", serde_json::Value::Null))
    }
}

#[tokio::test]
async fn build_reports_all_faults_at_once() {
    let world = tempfile::tempdir().unwrap();
    let invalid = Policy::inherit().deny_glob("/secret").allow("fly:file");
    let wider = Policy::new().allow("write:file:/repo/sub");
    let twice = || bailiwick::ToolSet::new().reader(Look);
    let builder = || {
        Runtime::builder()
            .root("repo", world.path())
            .root("same", world.path())
            .root("absent", world.path().join("absent"))
            .keep_out(world.path().join("no-key"))
            .tools(twice())
            .tools(twice())
            .policy(invalid.clone())
    };
    // A policy is compared with the roots that were named, whether they can be opened or not.
    let named = wider.clone().allow("read:file:/absent");
    let built = builder().policy(named).build().await;
    let error = built.unwrap_err();
    assert!(
        matches!(
            error.faults(),
            [
                BuildFault::Tools(_),
                BuildFault::KeptOut { .. },
                BuildFault::Root(RootError::Unsafe { .. }),
                BuildFault::Root(RootError::Open { .. }),
                BuildFault::Policy(_),
                BuildFault::Policy(_),
            ]
        ),
        "{error}"
    );
    let text = error.to_string();
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(
        text.contains("cannot open the root `/absent`: No such file"),
        "{text}"
    );
    assert_eq!(format!("{error:?}"), text);
    assert!(
        error.data("file").is_none(),
        "the configuration is not the cause of all"
    );

    // Without the name of a root, only the arguments of a policy can be checked.
    let unnamed = builder().root("a/b", world.path()).grantable("fly:file");
    let error = unnamed.policy(wider).build().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(
        error.faults()[..2],
        [BuildFault::RootName(_), BuildFault::Pattern(_)]
    ));
    assert_eq!(text.lines().count(), 8, "{text}");
}

#[tokio::test]
async fn all_invalid_arguments_of_a_policy_are_reported_at_once() {
    let (runtime, _) = Runtime::builder().build().await.unwrap();
    let spawn = |policy| runtime.spawn(WorkerSpec::new("a").policy(policy));
    let invalid = Policy::inherit().deny_glob("/secret").deny("fly:file");
    let Err(bailiwick::SpawnError::Policy(error)) = spawn(invalid).await else {
        panic!("it was spawned");
    };
    let fields: Vec<String> = error
        .faults()
        .iter()
        .map(|it| it.field().to_owned())
        .collect();
    assert_eq!(fields, ["/deny/0", "/deny_scopes/0"]);
    let lines: Vec<String> = error.faults().iter().map(ToString::to_string).collect();
    assert_eq!(error.to_string(), lines.join("\n"));
    assert!(spawn(Policy::inherit().deny_glob("secret")).await.is_ok());
}

#[test]
fn building_outside_tokio_returns_an_error() {
    let build = std::pin::pin!(Runtime::builder().build());
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = build.poll(context) else {
        panic!("it was built, or waits");
    };
    assert!(matches!(error.faults(), [BuildFault::NoTokio]), "{error}");
}

#[tokio::test]
async fn later_source_cannot_reach_a_root_by_another_path() {
    let world = tempfile::tempdir().unwrap();
    let world = world.path().canonicalize().unwrap();
    let (real, link) = (world.join("real"), world.join("link"));
    std::fs::create_dir_all(real.join("sub")).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let config = |later: &std::path::Path| -> Config {
        let earlier = json!({ "roots": [{ "path": real, "deny": ["**/*.key"] }] });
        let sources = ConfigSources::new()
            .with(ConfigSource::File, earlier)
            .and_then(|it| {
                it.with(
                    ConfigSource::Initialize,
                    json!({ "roots": [{ "path": later }] }),
                )
            });
        sources.unwrap().effective().unwrap().config
    };
    for renamed in [link.clone(), link.join("sub")] {
        let built = Runtime::builder()
            .configured(config(&renamed))
            .build()
            .await;
        let BuildFault::Configured { field, source } = only_fault(&built) else {
            panic!("{built:?}");
        };
        assert_eq!(field, "/roots/0/path");
        assert!(source.to_string().contains("other names"), "{source}");
    }
    for same in [real.clone(), real.join("sub")] {
        let config = config(&same);
        let read = |name: &str| {
            let need = format!("read:file:{}/{name}", same.display());
            let authority = Authority::configured(&config).unwrap();
            authority.judge(&need.parse().unwrap(), &[])
        };
        assert_eq!([read("a.key"), read("a")], [Verdict::Deny, Verdict::Allow]);
        assert!(Runtime::builder().configured(config).build().await.is_ok());
    }
}

#[tokio::test]
async fn scopes_of_other_resources_need_builder_allow() {
    let wanted = || WorkerSpec::new("net").policy(Policy::nothing().allow("read:network"));
    let (runtime, _) = Runtime::builder().build().await.unwrap();
    let refused = runtime.spawn(wanted()).await.unwrap_err().to_string();
    for part in ["`read:network`", "RuntimeBuilder::allow"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let builder = Runtime::builder().allow("read:network");
    let (runtime, _) = builder.build().await.unwrap();
    assert!(runtime.spawn(wanted()).await.is_ok());
}

/// The result of a call that needs `read:network:example`, and the explanation of that need.
async fn fetched(builder: RuntimeBuilder) -> (Result<Outcome, CallError>, String) {
    let needs = |_: &Value, _: &_| Ok(vec!["read:network:example".parse().unwrap()]);
    let spec = ToolSpec::new("fetch", "Fetch", "Fetches a page.").scopes(&["read:network"]);
    let tools = ToolSet::new().read_function(spec, needs, |_, _| Ok(Reply::text("page", ())));
    let (runtime, _) = builder.tools(tools).build().await.unwrap();
    let spec = WorkerSpec::new("net").policy(Policy::inherit());
    let worker = runtime.spawn(spec).await.unwrap();
    let explained = worker.explain(&Call::new("fetch", json!({}))).unwrap();
    let explained = explained[0].to_string();
    (worker.call("fetch", json!({})).await, explained)
}

#[tokio::test]
async fn allowed_network_scope_turns_the_network_on() {
    for pattern in ["read:network", "read:network:example", "*:network"] {
        let (called, explained) = fetched(Runtime::builder().allow(pattern)).await;
        assert!(called.is_ok(), "{pattern}: {explained}");
    }
}

#[tokio::test]
async fn network_is_off_unless_named_and_the_denial_names_its_key() {
    let off = Config::new().policy(Policy::new().network(false));
    let everything = Runtime::builder().allow("*");
    let configured = Runtime::builder().config(off).allow("read:network");
    let named = Runtime::builder().allow("read:network");
    let session = named.policy(Policy::new().network(false));
    for builder in [everything, configured, session] {
        let (called, explained) = fetched(builder).await;
        let refused = called.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        for text in [refused.to_string(), explained] {
            assert!(text.contains("key `network`"), "{text}");
            assert!(text.contains("`RuntimeBuilder::allow`"), "{text}");
        }
    }
}

#[tokio::test]
async fn policy_that_turns_the_network_on_is_told_how() {
    let builder = Runtime::builder().policy(Policy::new().network(true));
    let refused = builder.build().await.unwrap_err().to_string();
    assert!(refused.contains("/network is off"), "{refused}");
    assert!(refused.contains("`RuntimeBuilder::allow`"), "{refused}");
    let builder = Runtime::builder().allow("read:network");
    let builder = builder.policy(Policy::new().network(true));
    assert!(builder.build().await.is_ok());
}

#[tokio::test]
async fn policies_with_unknown_tools_are_rejected() {
    let (runtime, _) = Runtime::builder().build().await.unwrap();
    let spawn = |tool| runtime.spawn(WorkerSpec::new("a").policy(Policy::inherit().tools([tool])));
    let refused = spawn("typo").await.unwrap_err().to_string();
    assert!(
        refused.contains("/tools names an unknown tool: `typo`"),
        "{refused}"
    );
    // A server may offer it later.
    assert!(spawn("github__create_issue").await.is_ok());
    let spec = WorkerSpec::new("b").policy(Policy::inherit());
    let worker = runtime.spawn(spec).await.unwrap();
    let call = async |tools: Value| {
        let call = Call::new("absent", json!({})).meta(CallMeta {
            policy: Some(json!({ "tools": tools })),
            ..CallMeta::default()
        });
        worker.submit(call).await.unwrap_err()
    };
    let refused = call(json!(["typo"])).await;
    assert_eq!(refused.code(), Code::PolicyInvalid, "{refused}");
    assert_eq!(refused.details()["field"], "/tools");
    let unknown = call(json!(["github__create_issue"])).await;
    assert_eq!(unknown.code(), Code::UnknownTool, "{unknown}");
}

#[tokio::test]
async fn debug_output_of_errors_is_their_message() {
    let world = tempfile::tempdir().unwrap();
    let builder = Runtime::builder().root("repo", world.path());
    let (runtime, _) = builder.build().await.unwrap();
    let wider = Policy::new().allow("read:file:/etc");
    let refused = runtime.spawn(WorkerSpec::new("a").policy(wider)).await;
    let printed = format!("{:?}", refused.unwrap_err());
    assert!(
        printed.contains("asked for: `read:file:/etc`; held: `/repo` ("),
        "{printed}"
    );
    let absent = Runtime::builder().root("r", world.path().join("absent"));
    let printed = format!("{:?}", absent.build().await.unwrap_err());
    assert!(
        printed.starts_with("cannot open the root `/r`: No such file"),
        "{printed}"
    );
    let unopened = JsonLines::create(world.path().join("absent/log")).unwrap_err();
    assert_eq!(format!("{unopened:?}").lines().count(), 1, "{unopened:?}");
    assert!(
        format!("{unopened:?}").contains("No such file"),
        "{unopened:?}"
    );
    let wrong = Policy::parse(&serde_json::json!("x")).unwrap_err();
    assert_eq!(format!("{wrong:?}"), "the policy must be an object");
}
