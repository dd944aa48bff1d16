//! What clients show to authenticators: tokens that are signed, and proofs of SCRAM.

use crate::Target;

pub(crate) const CLAIMS: Target = Target {
    name: "jwt",
    run: authentication::fuzzing::token,
    seeds: token_seeds,
};

pub(crate) const SCRAM: Target = Target {
    name: "scram",
    run: authentication::fuzzing::scram,
    seeds: scram_seeds,
};

fn token_seeds() -> Vec<Vec<u8>> {
    let header = br#"{"alg":"HS256","typ":"JWT"}"#;
    [
        &br#"{"sub":"u","exp":4000000000,"acl":{"pub":["a/#"],"sub":["b/+","$share/g/c"],"all":["d"]}}"#[..],
        br##"{"sub":"u","nbf":1,"aud":["x"],"acl":[{"permission":"allow","action":"publish","topic":"a"},{"permission":"deny","action":"all","topic":"#"}]}"##,
        br#"{"exp":1e300,"sub":1}"#,
    ]
    .map(|claims| {
        let mut input = Vec::new();
        crate::input::counted(header, &mut input);
        input.extend(claims);
        input
    })
    .into()
}

fn scram_seeds() -> Vec<Vec<u8>> {
    ["n,,n=user,r=abcdef", "y,a=u=2Cx,n=u=2Cx,r=0"]
        .map(|first| {
            let mut input = Vec::new();
            crate::input::counted(first.as_bytes(), &mut input);
            input.extend(b"c=biws,r=abcdefserver,p=dGVzdA==");
            input
        })
        .into()
}
