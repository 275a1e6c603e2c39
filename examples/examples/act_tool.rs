//! Defines an act tool: it posts an order to a web shop (a fake in this process), which a person sees and allows first.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "examples print what happens and panic on failure"
)]

use std::error::Error;
use std::sync::{Arc, Mutex};

use bailiwick::config::Namespace;
use bailiwick::effect::ResourceChange;
use bailiwick::tool::{ActPermit, ActProgress, Foreseen, Prepared, Rights};
use bailiwick::{
    ActTool, Answer, CallError, Code, Config, Policy, Reply, Runtime, Scripted, ToolSet, ToolSpec,
    WorkerSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The orders that the shop has received.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Vec<String>>>);

impl Shop {
    /// Answers `POST /orders` with the number of the order.
    async fn post(&self, body: String) -> usize {
        tokio::task::yield_now().await;
        let mut orders = self.0.lock().unwrap();
        orders.push(body);
        orders.len()
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    /// What to order.
    item: String,
    /// How many.
    count: u32,
}

struct PostOrder(Shop);

impl ActTool for PostOrder {
    type Args = Order;
    type Output = ();
    type Job = Order;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("post_order", "Order", "Orders an item at the shop.")
            .intent("Order {count} of {item}")
            .scopes(&["write:shop:orders"])
    }

    fn prepare(&self, order: Order, _: &Namespace) -> Result<Prepared<Order>, CallError> {
        let needs = vec!["write:shop:orders".parse().unwrap()];
        Ok(Prepared { needs, job: order })
    }

    fn foresee(&self, order: &Order, _: &Rights<'_>) -> Foreseen {
        let change = ResourceChange::new("shop.example/orders", "post an order");
        Foreseen::Changes(vec![change.after(body(order))])
    }

    async fn act(
        &self,
        order: &Order,
        permit: ActPermit,
        progress: ActProgress,
    ) -> Result<Reply, CallError> {
        // Fails if the call was cancelled or its worker revoked. From here on, an error says that the effect had begun.
        let _act = permit.begin()?;
        let number = self.0.post(body(order)).await;
        progress.step();
        Ok(Reply::text(format!("order {number}"), ()))
    }
}

fn body(order: &Order) -> String {
    json!({ "item": order.item, "count": order.count }).to_string()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shop = Shop::default();
    let config = Config {
        grantable: vec!["write:shop:orders".parse()?],
        ..Config::new()
    };
    let approver = Scripted::new().rule(|question| {
        let diff = question.request.preview.as_ref()?.diff();
        println!("question: {}\n{diff}", question.request.intent);
        diff.contains("tea").then_some(Answer::ONCE)
    });
    let tools = ToolSet::new().actor(PostOrder(shop.clone()));
    let builder = Runtime::builder().config(config).tools(tools);
    let (runtime, _grants) = builder.approver(approver).build().await?;
    let worker = WorkerSpec::new("buyer").policy(Policy::inherit());
    let worker = runtime.spawn(worker).await?;

    let tea = json!({ "item": "tea", "count": 12 });
    let preview = worker.preview("post_order", tea.clone()).await?;
    assert!(preview.diff().contains(r#""item":"tea""#));
    assert!(shop.0.lock().unwrap().is_empty());
    let outcome = worker.call("post_order", tea).await?;
    println!("allowed: {}", outcome.text());
    assert_eq!(outcome.text(), "order 1");

    let gold = json!({ "item": "gold", "count": 1 });
    let error = worker.call("post_order", gold).await.unwrap_err();
    println!("denied: {error}");
    assert_eq!(error.code(), Code::PermissionDenied);
    assert_eq!(shop.0.lock().unwrap().len(), 1);
    Ok(())
}
