//! Approval of calls: who is asked (`--ask`), and the approval page.

use std::io::{self, IsTerminal as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bailiwick::permission::ServerCard;
use bailiwick::{GrantAuthority, Runtime};
use bailiwick_console::{Console, ConsoleAudit, ConsoleSource};
use bailiwick_mcp::gateway::{GatewayBuilder, GatewayInfo, RefusalHints, Trust};
use tokio::net::TcpListener;

use super::secret::{SecretFile, deliver};
use super::{ServeError, about};
use crate::cli::{Ask, Options};

/// How calls are approved, tried in the order of the fields. Without any, such calls fail with `SCOPE_REQUIRED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ApprovalRoutes {
    /// Elicitation, if the client supports it.
    pub(super) client: bool,
    /// The approval page.
    pub(super) page: bool,
    /// The client may send grants, with a call or in response to elicitation.
    pub(super) grants: bool,
}

impl ApprovalRoutes {
    pub(super) fn of(options: &Options) -> Self {
        Self::new(options.flags.ask, options.trust, io::stderr().is_terminal())
    }

    /// `terminal` is true if standard error is a terminal.
    fn new(ask: Ask, trust: Trust, terminal: bool) -> Self {
        let client = matches!(ask, Ask::Auto | Ask::Client) && trust != Trust::Agent;
        let page = match ask {
            Ask::Page => true,
            // The address of the page is printed for a person to read.
            Ask::Auto => terminal,
            Ask::Replay | Ask::Client => false,
        };
        let grants = client || (ask == Ask::Replay && trust == Trust::Host);
        Self {
            client,
            page,
            grants,
        }
    }
}

/// Enables elicitation. Calls of clients without it wait for the approval page, if there is one.
pub(super) fn ask_client(
    gateway: GatewayBuilder,
    ask: Ask,
    routes: ApprovalRoutes,
) -> Result<GatewayBuilder, ServeError> {
    if !matches!(ask, Ask::Auto | Ask::Client) {
        return Ok(gateway);
    }
    let gateway = gateway.ask_client().map_err(ServeError::Random)?;
    Ok(if routes.page {
        gateway.or_wait()
    } else {
        gateway
    })
}

/// Serves the approval page. The returned file contains its address and is removed on drop.
pub(super) async fn page() -> Result<(Arc<Console>, Option<SecretFile>), ServeError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|source| ServeError::Listen { address, source })?;
    let console = Console::serve(listener)?;
    // The address is a secret: anyone who knows it can approve calls.
    let url = console.url();
    let forward = format!(
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url={url}\">\
         <title>bailiwick</title><a href=\"{url}\">Open the approval page</a>\n"
    );
    let file = deliver("approval page", url, "html", &forward);
    let file = file.map_err(ServeError::Secret)?;
    Ok((Arc::new(console), file))
}

/// Hints for models about calls that were denied.
pub(super) fn refusal_hints(options: &Options) -> RefusalHints {
    let ask = match options.trust {
        Trust::Host => {
            "Your host can ask its user for the scopes in `_meta.requested_scopes`, then repeat the call"
        }
        Trust::Client | Trust::Agent => {
            "Ask your user to start bailiwick with `--ask page`, which serves a page for approving such calls"
        }
    };
    RefusalHints {
        ask: ask.into(),
        outside: "It is outside the directories that `list_roots` names. Ask your user to start bailiwick with this \
                  directory, or to make it grantable with `--grantable`"
            .into(),
    }
}

/// The source of one runtime's data on the approval page.
pub(super) fn source(
    runtime: &Runtime,
    grants: Arc<GrantAuthority>,
    record: ConsoleAudit,
) -> ConsoleSource {
    let GatewayInfo { title, .. } = about();
    let card = ServerCard {
        name: title,
        description: "Reads, searches and changes files".into(),
        ..ServerCard::default()
    };
    ConsoleSource::new(grants)
        .runtime(runtime)
        .audit(record)
        .server(card)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [bool; 3] = [false; 3];

    /// The expected routes (client, page, grants) with and without a terminal.
    const ORDER: [(Ask, Trust, [bool; 3], [bool; 3]); 12] = [
        (
            Ask::Auto,
            Trust::Host,
            [true, true, true],
            [true, false, true],
        ),
        (
            Ask::Auto,
            Trust::Client,
            [true, true, true],
            [true, false, true],
        ),
        (Ask::Auto, Trust::Agent, [false, true, false], NOBODY),
        (
            Ask::Client,
            Trust::Host,
            [true, false, true],
            [true, false, true],
        ),
        (
            Ask::Client,
            Trust::Client,
            [true, false, true],
            [true, false, true],
        ),
        (Ask::Client, Trust::Agent, NOBODY, NOBODY),
        (
            Ask::Page,
            Trust::Host,
            [false, true, false],
            [false, true, false],
        ),
        (
            Ask::Page,
            Trust::Client,
            [false, true, false],
            [false, true, false],
        ),
        (
            Ask::Page,
            Trust::Agent,
            [false, true, false],
            [false, true, false],
        ),
        (
            Ask::Replay,
            Trust::Host,
            [false, false, true],
            [false, false, true],
        ),
        (Ask::Replay, Trust::Client, NOBODY, NOBODY),
        (Ask::Replay, Trust::Agent, NOBODY, NOBODY),
    ];

    #[test]
    fn routes_depend_on_ask_trust_and_terminal() {
        for (ask, trust, on_terminal, elsewhere) in ORDER {
            for (terminal, [client, page, grants]) in [(true, on_terminal), (false, elsewhere)] {
                let expected = ApprovalRoutes {
                    client,
                    page,
                    grants,
                };
                let routes = ApprovalRoutes::new(ask, trust, terminal);
                assert_eq!(routes, expected, "{ask:?} {trust:?} terminal {terminal}");
            }
        }
    }
}
