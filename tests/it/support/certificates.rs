//! Authorities and certificates made on the spot.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

/// An authority that signs.
pub type Authority = CertifiedIssuer<'static, KeyPair>;

/// When a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Now,
    Past,
    Future,
}

/// An authority, with its certificate in `folder/NAME.crt`.
pub fn authority(folder: &Path, name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), authority.pem()).unwrap();
    authority
}

/// A certificate for `host` (a name or an address): `folder/NAME.crt`, its key in `folder/NAME.key`, both in
/// `folder/NAME.pem`.
pub fn certificate(folder: &Path, name: &str, host: &str, authority: &Authority, validity: Validity) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, host);
    match validity {
        Validity::Now => {}
        Validity::Past => params.not_after = date_time_ymd(2020, 1, 1),
        Validity::Future => params.not_before = date_time_ymd(2200, 1, 1),
    }
    let certificate = params.signed_by(&key, authority).unwrap().pem();
    let write = |ending: &str, text: &str| std::fs::write(folder.join(format!("{name}.{ending}")), text).unwrap();
    write("crt", &certificate);
    write("key", &key.serialize_pem());
    write("pem", &(certificate + &key.serialize_pem()));
}
