//! The page on which people answer questions (`--ask page`).

use std::net::{Ipv4Addr, SocketAddr};

use bailiwick::{About, Console, ConsoleRecord, ConsoleSource, GrantAuthority, ServerCard};
use tokio::net::TcpListener;

use super::secret::{SecretFile, hand_out};
use super::{ServeError, about};

/// The page on which people are asked.
pub(super) async fn page() -> Result<(Console, Option<SecretFile>), ServeError> {
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
    Ok((console, file))
}

/// What the page shows of one runtime. People are asked there and nowhere else: what a client says of grants counts for
/// nothing.
pub(super) fn source(grants: GrantAuthority, record: ConsoleRecord) -> ConsoleSource {
    let About { title, .. } = about();
    let card = ServerCard {
        name: title,
        description: "Reads, searches and changes files".into(),
        ..ServerCard::default()
    };
    ConsoleSource::new(grants).record(record).server(card)
}
