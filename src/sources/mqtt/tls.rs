//! The certificates of an `mqtts://` connection.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rumqttc::tokio_rustls::rustls::pki_types::pem::PemObject as _;
use rumqttc::tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rumqttc::tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::config::Tls;

/// What rustls needs; an error names the file.
pub(super) fn client_config(tls: &Tls) -> anyhow::Result<ClientConfig> {
    let roots = match &tls.ca_file {
        Some(file) => roots_of(file)?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS")?
        .with_root_certificates(roots);
    match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .with_context(|| format!("cannot read the key in {} (PEM is expected)", key.display()))?;
            config
                .with_client_auth_cert(chain, secret)
                .with_context(|| format!("key {} does not go with certificate {}", key.display(), cert.display()))
        }
        _ => Ok(config.with_no_client_auth()),
    }
}

fn roots_of(file: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).with_context(|| format!("{} holds a bad certificate", file.display()))?;
    }
    Ok(roots)
}

fn system_roots() -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (good, _bad) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    anyhow::ensure!(
        good > 0,
        "no certificate authorities on this system (install ca-certificates, or give tls.ca_file)"
    );
    Ok(roots)
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let what = || format!("cannot read certificates in {} (PEM is expected)", file.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).with_context(what)?.collect();
    let found = found.with_context(what)?;
    anyhow::ensure!(!found.is_empty(), "{} holds no certificate (PEM is expected)", file.display());
    Ok(found)
}
