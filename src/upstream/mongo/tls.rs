//! Certificates: the files a connection string names, looked at before the driver does, and failed handshakes in words
//! that name the thing and the remedy.

use std::path::Path;

use mongodb::options::{ClientOptions, Tls};

/// How to take the password off a private key.
const TAKE_OFF: &str = "openssl pkey -in KEY -out PLAIN";

/// Whether the files that are named can be used. The driver tells of a missing one without its name, and of an empty one
/// not at all.
pub(super) async fn check_files(options: &ClientOptions) -> Result<(), String> {
    let Some(Tls::Enabled(tls)) = &options.tls else { return Ok(()) };
    if let Some(file) = &tls.ca_file_path {
        let text = read("tlsCAFile", file).await?;
        if !text.contains("-----BEGIN CERTIFICATE-----") {
            return Err(format!("tlsCAFile: {} holds no certificate in PEM form", file.display()));
        }
    }
    match &tls.cert_key_file_path {
        Some(file) => own_certificate(&read("tlsCertificateKeyFile", file).await?, file),
        None => Ok(()),
    }
}

async fn read(option: &str, file: &Path) -> Result<String, String> {
    let bytes = tokio::fs::read(file).await.map_err(|cause| {
        format!("{option}: cannot read {}: {cause} (may the user of this service read it?)", file.display())
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn own_certificate(text: &str, file: &Path) -> Result<(), String> {
    let wrong = |words: &str| Err(format!("tlsCertificateKeyFile: {} {words}", file.display()));
    if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return wrong(&format!(
            "holds a private key with a password, which is not supported: take it off (`{TAKE_OFF}`) and let only this service read the file"
        ));
    }
    let is_there = |kind: &str| text.contains(&format!("{kind}-----\n")) || text.contains(&format!("{kind}-----\r\n"));
    match (is_there("BEGIN CERTIFICATE"), is_there("PRIVATE KEY")) {
        (true, true) => Ok(()),
        (false, _) => wrong("holds no certificate in PEM form: put certificate and private key into this one file"),
        (_, false) => wrong("holds no private key in PEM form: put certificate and private key into this one file"),
    }
}

/// What to do about a failed handshake.
pub(super) fn hint(words: &str) -> &'static str {
    // What we say of the server's certificate, and what it says of ours.
    match words.split_once("received fatal alert: ") {
        Some((_, alert)) => of_alert(alert),
        None => of_certificate(words),
    }
}

fn of_certificate(words: &str) -> &'static str {
    let says = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    if says(&["UnknownIssuer", "BadSignature", "CaUsedAsEndEntity"]) {
        "its certificate is signed by an authority that is not known here: add tlsCAFile=/path/to/ca.pem to the connection string, with the authority's certificate"
    } else if says(&["certificate expired", "Expired"]) {
        "the server's certificate is expired: renew it there (or is this gateway's clock ahead?); delivery goes on by itself then"
    } else if says(&["not valid yet", "NotValidYet"]) {
        "the server's certificate is not valid yet: is this gateway's clock behind? Delivery goes on by itself when it is set"
    } else if says(&["NotValidForName", "not valid for name", "not valid for any names"]) {
        "its certificate names another host: use the name that stands in it"
    } else if says(&["Revoked"]) {
        "the server's certificate was revoked: renew it there"
    } else {
        "the TLS handshake failed: does this port speak TLS?"
    }
}

fn of_alert(alert: &str) -> &'static str {
    let is = |names: &[&str]| names.iter().any(|name| alert.starts_with(name));
    if is(&["CertificateRequired", "HandshakeFailure"]) {
        "the server asks for a client certificate: add tlsCertificateKeyFile=/path/to/client.pem (certificate and key) to the connection string"
    } else if is(&["CertificateExpired"]) {
        "the server finds our client certificate expired: renew the file that tlsCertificateKeyFile names"
    } else if is(&[
        "UnknownCA",
        "BadCertificate",
        "CertificateUnknown",
        "CertificateRevoked",
        "UnsupportedCertificate",
        "DecryptError",
        "AccessDenied",
    ]) {
        "the server does not accept our client certificate: the one that tlsCertificateKeyFile names must be valid and signed by an authority that the server knows"
    } else if is(&["ProtocolVersion", "InsufficientSecurity"]) {
        "the server speaks no TLS version that is still safe: it needs 1.2 or 1.3"
    } else {
        "the server broke off the TLS handshake: its log tells why"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, expected: &str) {
        assert!(hint(words).contains(expected), "{words}: {}", hint(words));
    }

    #[test]
    fn each_failed_handshake_has_its_remedy() {
        check("invalid peer certificate: UnknownIssuer", "tlsCAFile");
        check("invalid peer certificate: certificate expired: verification time 1 (UNIX)", "renew it there");
        check("invalid peer certificate: Expired", "renew it there");
        check("invalid peer certificate: certificate not valid yet: verification time 1 (UNIX)", "clock behind");
        check("invalid peer certificate: certificate not valid for name \"a\"; certificate is only", "another host");
        check("received fatal alert: CertificateRequired", "asks for a client certificate");
        check("received fatal alert: HandshakeFailure", "tlsCertificateKeyFile");
        check("received fatal alert: CertificateExpired", "our client certificate expired");
        check("received fatal alert: UnknownCA", "an authority that the server knows");
        check("received fatal alert: ProtocolVersion", "1.2 or 1.3");
        check("received fatal alert: InternalError", "its log");
        check("received corrupt message of type InvalidContentType", "speak TLS");
    }

    #[test]
    fn a_file_for_the_own_certificate_holds_both_and_no_password() {
        let of = |text: &str| own_certificate(text, Path::new("/etc/c.pem")).err().unwrap_or_default();
        let (certificate, key) = ("-----BEGIN CERTIFICATE-----\nMII\n", "-----BEGIN EC PRIVATE KEY-----\nMHc\n");
        assert_eq!(of(&format!("{certificate}{key}")), "");
        assert_eq!(of(&format!("{certificate}{key}").replace('\n', "\r\n")), "");
        assert!(of(certificate).contains("/etc/c.pem holds no private key"));
        assert!(of(key).contains("/etc/c.pem holds no certificate"));
        for locked in ["-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII\n", "Proc-Type: 4,ENCRYPTED\n"] {
            assert!(of(&format!("{certificate}{locked}")).contains("openssl pkey"), "{locked}");
        }
    }
}
