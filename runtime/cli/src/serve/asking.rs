//! Who is asked about calls that need approval (`--ask`), and the approval page.

use std::io::{self, IsTerminal as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bailiwick::{
    Console, ConsoleAudit, ConsoleSource, GatewayBuilder, GatewayInfo, GrantAuthority,
    RefusalHints, ServerCard, Trust,
};
use tokio::net::TcpListener;

use super::secret::{SecretFile, hand_out};
use super::{ServeError, about};
use crate::cli::{Ask, Options};

/// Who is asked about calls that need approval, in the order of the fields. A call that nobody is asked about fails with
/// `SCOPE_REQUIRED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The person behind a client that can elicit.
    pub(super) client: bool,
    /// The person at the approval page.
    pub(super) page: bool,
    /// The client brings what its person granted, with the call or in answer to elicitation.
    pub(super) grants: bool,
}

impl Asked {
    pub(super) fn of(options: &Options) -> Self {
        Self::by(options.ask, options.trust, io::stderr().is_terminal())
    }

    /// `terminal` says whether the program was started on one.
    fn by(ask: Ask, trust: Trust, terminal: bool) -> Self {
        let client = matches!(ask, Ask::Auto | Ask::Client) && trust != Trust::Agent;
        let page = match ask {
            Ask::Page => true,
            // On a terminal a person reads the address of the page; elsewhere nobody may.
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

/// Lets the gateway ask the person behind a client; other calls wait for the page, if there is one.
pub(super) fn by_client(
    gateway: GatewayBuilder,
    ask: Ask,
    asked: Asked,
) -> Result<GatewayBuilder, ServeError> {
    if !matches!(ask, Ask::Auto | Ask::Client) {
        return Ok(gateway);
    }
    let gateway = gateway.ask_client()?;
    Ok(if asked.page {
        gateway.or_wait()
    } else {
        gateway
    })
}

/// The page on which people are asked, and the file with its address, which is removed when it is dropped.
pub(super) async fn page() -> Result<(Arc<Console>, Option<SecretFile>), ServeError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|source| ServeError::Listen { address, source })?;
    let console = Console::serve(listener)?;
    // Whoever knows the address answers, so nobody but the person may learn it.
    let url = console.url();
    let forward = format!(
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url={url}\">\
         <title>bailiwick</title><a href=\"{url}\">Open the approval page</a>\n"
    );
    let file = hand_out("asking on the page", url, "html", &forward);
    let file = file.map_err(ServeError::Secret)?;
    Ok((Arc::new(console), file))
}

/// What a model tells its person about a refusal.
pub(super) fn advice(options: &Options) -> RefusalHints {
    let ask = match options.trust {
        Trust::Host => {
            "The program that runs you can ask its user for the scopes in `_meta.requested_scopes`, and call again"
        }
        Trust::Client | Trust::Agent => {
            "Ask your user: bailiwick started with `--ask page` shows such calls on a page where they can be allowed"
        }
    };
    RefusalHints {
        ask: ask.into(),
        outside: "It lies outside the folders that `list_roots` names. Ask your user: they can start bailiwick with a \
                  further directory, or with `--grantable` for what people may allow on request"
            .into(),
    }
}

/// What the page shows of one runtime.
pub(super) fn source(grants: Arc<GrantAuthority>, record: ConsoleAudit) -> ConsoleSource {
    let GatewayInfo { title, .. } = about();
    let card = ServerCard {
        name: title,
        description: "Reads, searches and changes files".into(),
        ..ServerCard::default()
    };
    ConsoleSource::new(grants).audit(record).server(card)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [bool; 3] = [false; 3];

    /// On a terminal and elsewhere: whether the client is asked, then the page, and whether the client brings grants.
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
    fn order_of_asking_follows_from_ask_trust_and_terminal() {
        for (ask, trust, on_terminal, elsewhere) in ORDER {
            for (terminal, [client, page, grants]) in [(true, on_terminal), (false, elsewhere)] {
                let expected = Asked {
                    client,
                    page,
                    grants,
                };
                let asked = Asked::by(ask, trust, terminal);
                assert_eq!(asked, expected, "{ask:?} {trust:?} terminal {terminal}");
            }
        }
    }
}
