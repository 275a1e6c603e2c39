//! Defines two custom tools: one that reads a database and one that writes to it.
//!
//! Calls of custom tools are authorized, previewed, approved and audited like calls of the file tools.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "examples print what happens and panic on failure"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick::config::Namespace;
use bailiwick::effect::{Cost, ResourceChange};
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, WritePermit};
use bailiwick::{
    Answer, CallError, Code, Config, Plan, Policy, ReadTool, Reply, Runtime, Scope, Scripted,
    ToolSet, ToolSpec, WorkerSpec, WriteTool,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// An in-memory database: the stock of a shop.
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

/// The scope that a call needs, such as `read:database:stock:tea`. Items that are not valid in a scope are rejected.
fn needs(verb: &str, item: &str) -> Result<Vec<Scope>, CallError> {
    let scope = format!("{verb}:database:stock:{item}").parse();
    let invalid = |_| CallError::new(Code::InvalidArguments, "invalid item name");
    scope.map(|scope| vec![scope]).map_err(invalid)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountArgs {
    /// The item to count.
    item: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct StockCount {
    item: String,
    count: u32,
}

fn reply(item: &str, count: u32) -> Reply {
    let item = item.to_owned();
    Reply::text(format!("{item}: {count}"), StockCount { item, count })
}

struct CountStock(Stock);

impl ReadTool for CountStock {
    type Args = CountArgs;
    type Output = StockCount;
    type Job = String;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "count_stock",
            "Count",
            "Returns how many of an item are in stock.",
        )
        .scopes(&["read:database"])
        .idempotent()
    }

    fn prepare(&self, args: CountArgs, _: &Namespace) -> Result<Prepared<String>, CallError> {
        let needs = needs("read", &args.item)?;
        Ok(Prepared {
            needs,
            job: args.item,
        })
    }

    fn read(&self, item: &String, _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(reply(item, self.0.count(item)))
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

/// A planned order. It is applied only if the count is still `from`.
#[derive(Debug)]
struct Order {
    item: String,
    from: u32,
    to: u32,
}

struct OrderStock(Stock);

impl WriteTool for OrderStock {
    type Args = OrderArgs;
    type Output = StockCount;
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
        let needs = needs("write", &args.item)?;
        Ok(Prepared {
            needs,
            job: (args.item, args.more),
        })
    }

    fn plan(&self, (item, more): &(String, u32), _: &ReadPermit) -> Result<Plan<Order>, Interrupt> {
        let from = self.0.count(item);
        let to = from.saturating_add(*more);
        Ok(Plan {
            changes: Vec::new(),
            resources: vec![change(item, from, to)],
            reply: reply(item, to),
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
        // Fails if the worker was revoked. A later revocation waits until the commit is dropped.
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

/// The change as it is previewed. The preview token is a hash of it.
fn change(item: &str, from: u32, to: u32) -> ResourceChange {
    ResourceChange::new(format!("stock:{item}"), "order more")
        .before(from.to_string())
        .after(to.to_string())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stock = Stock::default();
    let tools = ToolSet::new()
        .reader(CountStock(stock.clone()))
        .writer(OrderStock(stock.clone()));
    // Resources other than files are denied unless configured: counting is allowed, ordering tea is grantable.
    let config = Config {
        allow: vec!["read:database:stock".parse()?],
        grantable: vec!["write:database:stock:tea".parse()?],
        ..Config::new()
    };
    let approver = Scripted::new().rule(|question| {
        println!("  question: allow {:?}?", question.request.needs);
        Some(Answer::ONCE)
    });
    let builder = Runtime::builder().config(config).tools(tools);
    let (runtime, _grants) = builder.approver(approver).build().await?;
    let shop = WorkerSpec::new("shop").policy(Policy::inherit());
    let shop = runtime.spawn(shop).await?;

    let order = |item: &str| json!({ "item": item, "more": 12 });
    // No file scope lets the worker read this item, so the preview needs approval, too.
    let preview = shop.preview("order_stock", order("tea")).await?;
    println!("preview (nothing is ordered yet):\n{}", preview.diff());
    assert_eq!(stock.count("tea"), 0);
    let outcome = shop.call("order_stock", order("tea")).await?;
    println!("allowed once: {}", outcome.text());
    assert_eq!(stock.count("tea"), 12);

    let outcome = shop.call("count_stock", json!({ "item": "tea" })).await?;
    let count = outcome.output::<StockCount>().map(|stock| stock.count);
    assert_eq!(count, Some(12));

    let error = shop.call("order_stock", order("coffee")).await.unwrap_err();
    println!("coffee is not grantable: {error}");
    assert_eq!(error.code(), Code::PermissionDenied);
    let error = shop.call("order_stock", order("tea:*")).await.unwrap_err();
    println!("invalid item: {error}");
    assert_eq!(error.code(), Code::InvalidArguments);
    assert_eq!(stock.table().len(), 1);

    // Policies restrict custom tools like any other tool.
    let clerk = Policy::nothing().allow("read:database:stock");
    let clerk = shop.spawn(WorkerSpec::new("clerk").policy(clerk)).await?;
    let error = clerk.call("order_stock", order("tea")).await.unwrap_err();
    println!("the clerk may only count: {error}");
    assert_eq!(error.code(), Code::PermissionDenied);
    assert_eq!(stock.count("tea"), 12);
    Ok(())
}
