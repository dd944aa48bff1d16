//! Files of Mosquitto and EMQX: reading them does not panic, and each rule that comes of them can be read.

use authorization::Rules;
use control_document::{
    Digest, EmqxHash, SaltPosition, TableFormat, dynsec, emqx_acl, emqx_users, mosquitto_acl,
    password_file,
};

/// The first byte says which reader it is for.
pub(crate) fn run(bytes: &[u8]) {
    let (kind, text) = bytes.split_first().unwrap_or((&0, &[]));
    let text = String::from_utf8_lossy(text);
    let salted = EmqxHash::Salted(Digest::Sha256, SaltPosition::Suffix);
    let read = match kind % 6 {
        0 => password_file(&text, true),
        1 => mosquitto_acl(&text, Vec::new()),
        2 => dynsec(&text),
        3 => emqx_acl(&text),
        4 => emqx_users(&text, TableFormat::Csv, &salted, true),
        _ => emqx_users(&text, TableFormat::Json, &EmqxHash::Bcrypt, true),
    };
    // An error is an answer, too: then nothing is read.
    let document = read.unwrap_or_default().document;
    for user in &document.users {
        Rules::from_lines(&user.rules).expect("rules of a user");
    }
    for group in &document.groups {
        Rules::from_lines(&group.rules).expect("rules of a group");
    }
    let list = document.rules.unwrap_or_default();
    Rules::parse(&list.join("\n")).expect("the list for everybody");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u8, text: &str| [&[kind], text.as_bytes()].concat();
    vec![
        seed(
            0,
            "# who\nann:$7$101$c2FsdA==$aGFzaA==\nbob:$6$c2FsdA==$aGFzaA==\n",
        ),
        seed(
            1,
            "topic read a/#\nuser ann\ntopic deny a b/c\npattern write s/%u/%c\n",
        ),
        seed(
            2,
            r#"{"defaultACLAccess":{"subscribe":true},"clients":[{"username":"a","roles":[{"rolename":"r","priority":1}],"password":"aGFzaA==","salt":"c2FsdA==","iterations":101}],"groups":[{"groupname":"g","roles":[{"rolename":"r"}],"clients":[{"username":"a"}]}],"anonymousGroup":"g","roles":[{"rolename":"r","acls":[{"acltype":"publishClientSend","topic":"a/%u/#","priority":2,"allow":true},{"acltype":"subscribeLiteral","topic":"eq:a","allow":false}]}]}"#,
        ),
        seed(
            3,
            "%% text\n{allow, {'and', [{user, {re, \"^a.*b$\"}}, {ipaddr, \"10.0.0.1/8\"}]}, publish, [\"a/${clientid}\", {eq, \"#\"}]}.\n{deny, {'or', [{clientid, <<\"c\">>}]}, {all, [{retain, true}]}, [\"b c\"]}.\n{allow, all}.\n",
        ),
        seed(
            4,
            "user_id,password_hash,salt,is_superuser\n\"a,b\",b6c743545a7817ae8c8f624371d5f5f0373234bb0ff36b8ffbf19bce0e06ab75,s,true\n",
        ),
        seed(
            5,
            r#"[{"user_id":"a","password_hash":"$2b$04$x","salt":"","is_superuser":false}]"#,
        ),
    ]
}
