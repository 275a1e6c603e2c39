//! A tool of your own in, its calls judged, previewed, asked about and audited like those on files out.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example shows what happens, and fails by panicking"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick::{
    Answer, CallError, Change, Code, Config, ContentHash, Cost, Entry, FileDiff, Hunk, HunkLine,
    Interrupt, Namespace, Op, Plan, Policy, Prepared, ReadPermit, ReadTool, Reply, Runtime, Scope,
    Scripted, ToolSet, ToolSpec, VirtualPath, WorkerSpec, WritePermit, WriteTool,
};
use bailiwick_examples::diff;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Stands for a database: the stock of a shop.
#[derive(Clone, Default)]
struct Stock(Arc<Mutex<BTreeMap<String, u32>>>);

impl Stock {
    fn table(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, item: &str) -> u32 {
        self.table().get(item).copied().unwrap_or_default()
    }
}

/// What a call needs: `read:database:stock:<item>`, for example. The text becomes a scope or the call is refused,
/// so no item can pass for another.
fn need(verb: &str, item: &str) -> Result<Vec<Scope>, CallError> {
    let scope = format!("{verb}:database:stock:{item}").parse();
    let invalid = |_| CallError::new(Code::InvalidArguments, "an item is a plain name");
    scope.map(|scope| vec![scope]).map_err(invalid)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountArgs {
    /// The item to count.
    item: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Counted {
    item: String,
    count: u32,
}

fn counted(item: &str, count: u32) -> Reply {
    let item = item.to_owned();
    Reply::text(format!("{item}: {count}"), Counted { item, count })
}

struct CountStock(Stock);

impl ReadTool for CountStock {
    type Args = CountArgs;
    type Output = Counted;
    type Job = String;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("count_stock", "Count", "Says how many of an item are left.")
            .scopes(&["read:database"])
            .idempotent()
    }

    fn prepare(&self, args: CountArgs, _: &Namespace) -> Result<Prepared<String>, CallError> {
        let needs = need("read", &args.item)?;
        Ok(Prepared {
            needs,
            job: args.item,
        })
    }

    fn read(&self, item: &String, _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(counted(item, self.0.count(item)))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OrderArgs {
    /// The item to order.
    item: String,
    /// How many.
    more: u32,
}

/// What apply does, if the table still says what the plan saw.
#[derive(Debug)]
struct Order {
    item: String,
    from: u32,
    to: u32,
}

struct OrderStock(Stock);

impl WriteTool for OrderStock {
    type Args = OrderArgs;
    type Output = Counted;
    type Job = (String, u32);
    type Steps = Order;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("order_stock", "Order", "Orders more of an item.").scopes(&["write:database"])
    }

    fn prepare(
        &self,
        args: OrderArgs,
        _: &Namespace,
    ) -> Result<Prepared<(String, u32)>, CallError> {
        let needs = need("write", &args.item)?;
        Ok(Prepared {
            needs,
            job: (args.item, args.more),
        })
    }

    fn plan(&self, (item, more): &(String, u32), _: &ReadPermit) -> Result<Plan<Order>, Interrupt> {
        let from = self.0.count(item);
        let to = from.saturating_add(*more);
        Ok(Plan {
            changes: vec![change(item, from, to)?],
            reply: counted(item, to),
            cost: Cost { bytes: 4, files: 1 },
            steps: Order {
                item: item.clone(),
                from,
                to,
            },
            inverse: None,
        })
    }

    fn apply(&self, order: Order, permit: WritePermit) -> Result<(), CallError> {
        // Revocation waits for what begins here, and nothing begins after it.
        let _commit = permit.begin()?;
        let mut table = self.0.table();
        let count = table.entry(order.item).or_default();
        if *count != order.from {
            return Err(CallError::new(Code::StalePreview, "the stock changed"));
        }
        *count = order.to;
        Ok(())
    }
}

/// The change as people see it; the preview token is the hash of this.
fn change(item: &str, from: u32, to: u32) -> Result<Change, CallError> {
    let row = |count: u32| format!("{item} = {count}\n");
    let entry = |count: u32| Entry::File {
        hash: ContentHash::of(row(count).as_bytes()),
        bytes: row(count).len() as u64,
    };
    let line = |op, count| HunkLine {
        op,
        text: row(count),
    };
    let hunk = Hunk {
        old_start: 1,
        old_lines: 1,
        new_start: 1,
        new_lines: 1,
        lines: vec![line('-', from), line('+', to)],
    };
    let path = VirtualPath::parse(&format!("/stock/{item}"), None)
        .map_err(|error| CallError::new(Code::InvalidArguments, error.to_string()))?;
    Ok(Change {
        path,
        op: Op::Modify,
        to: None,
        before: entry(from),
        after: entry(to),
        diff: FileDiff {
            hunks: vec![hunk],
            added: 1,
            removed: 1,
            ..FileDiff::default()
        },
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stock = Stock::default();
    let tools = ToolSet::new()
        .reader(CountStock(stock.clone()))
        .writer(OrderStock(stock.clone()));
    // What is no file is closed until a person configures it: to look is allowed, to order can be granted.
    let config = Config {
        allow: vec!["read:database:stock".parse()?],
        grantable: vec!["write:database:stock:tea".parse()?],
        ..Config::new()
    };
    let person = Scripted::new().rule(|question| {
        println!("  asked to allow {:?}", question.request.needs);
        Some(Answer::ONCE)
    });
    let builder = Runtime::builder().config(config).tools(tools);
    let (runtime, _grants) = builder.approver(person).build().await?;
    let shop = WorkerSpec::new("shop").policy(Policy::new());
    let shop = runtime.spawn(shop).await?;

    let order = |item: &str| json!({ "item": item, "more": 12 });
    // Nobody may read this item by a file scope, so people are asked before its preview, too.
    let preview = shop.preview("order_stock", order("tea")).await?;
    println!("the preview, with nothing ordered yet:");
    for line in diff(&preview.changes, false) {
        println!("  {line}");
    }
    assert_eq!(stock.count("tea"), 0);
    let outcome = shop.call("order_stock", order("tea")).await?;
    println!("the person said yes, once: {}", outcome.text());
    assert_eq!(stock.count("tea"), 12);

    let left = shop.call("count_stock", json!({ "item": "tea" })).await?;
    assert_eq!(left.output::<Counted>().map(|left| left.count), Some(12));

    let beyond = shop.call("order_stock", order("coffee")).await.unwrap_err();
    println!("nobody can grant coffee: {beyond}");
    assert_eq!(beyond.code(), Code::PermissionDenied);
    let forged = shop.call("order_stock", order("tea:*")).await.unwrap_err();
    println!("an item that is none: {forged}");
    assert_eq!(forged.code(), Code::InvalidArguments);
    assert_eq!(stock.table().len(), 1);

    // A child may do with it what its policy leaves, like with any other tool.
    let clerk = Policy::new().allow("read:database:stock");
    let clerk = shop.spawn(WorkerSpec::new("clerk").policy(clerk)).await?;
    let refused = clerk.call("order_stock", order("tea")).await.unwrap_err();
    println!("the clerk may only count: {refused}");
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(stock.count("tea"), 12);
    Ok(())
}
