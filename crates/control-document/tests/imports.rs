//! Files of Mosquitto and EMQX, read as documents: `files/README.md` says where they come from.

use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use authentication::{StoredAs, Users, WeakHashes, stored_as, stored_as_with};
use authorization::{Action, Client, Effect, Rules};
use control_document::{
    Document, EmqxHash, GroupEntry, Imported, TableFormat, UserEntry, dynsec, emqx, emqx_acl,
    emqx_users, mosquitto, mosquitto_acl, password_file,
};
use proptest::prelude::*;

fn file(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

fn path(name: &str) -> String {
    format!("{}/tests/files/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn user<'a>(document: &'a Document, name: &str) -> &'a UserEntry {
    let mut users = document.users.iter();
    users.find(|user| user.name == name).expect(name)
}

fn group<'a>(document: &'a Document, name: &str) -> &'a GroupEntry {
    let mut groups = document.groups.iter();
    groups.find(|group| group.name == name).expect(name)
}

fn said(imported: &Imported) -> Vec<String> {
    let left_out = imported.left_out.iter();
    left_out
        .map(|left| format!("{}: {}", left.at, left.why))
        .collect()
}

/// That the broker can read all rules, and that names which are to be sorted are.
fn check(imported: &Imported) {
    let document = &imported.document;
    let sorted = |names: &[String]| names.is_sorted_by(|a, b| a < b);
    for user in &document.users {
        Rules::from_lines(&user.rules).expect("rules of a user");
        assert!(sorted(&user.groups));
    }
    for group in &document.groups {
        Rules::from_lines(&group.rules).expect("rules of a group");
        assert!(sorted(&group.includes));
    }
    assert!(document.users.is_sorted_by(|a, b| a.name < b.name));
    assert!(document.groups.is_sorted_by(|a, b| a.name < b.name));
    let list = document.rules.clone().unwrap_or_default();
    assert!(list.iter().all(|line| !line.contains(['\n', '\r', '\0'])));
    Rules::parse(&list.join("\n")).expect("the list for everybody");
}

/// The rules of a user as the broker puts them together (docs/operate/security.md, users of the control store).
fn rules_of(document: &Document, name: Option<&str>) -> Rules {
    let found = name.and_then(|name| document.users.iter().find(|user| user.name == name));
    let mut lines = Vec::new();
    if let Some(user) = found {
        lines.extend(&user.rules);
        let groups = user.groups.iter().map(|name| group(document, name));
        let mut groups: Vec<&GroupEntry> = groups.collect();
        groups.sort_by_key(|group| (Reverse(group.priority), &group.name));
        for one in groups {
            lines.extend(&one.rules);
            for included in &one.includes {
                lines.extend(&group(document, included).rules);
            }
        }
    }
    Rules::from_lines(lines).unwrap()
}

/// Compares what the document allows with what the other broker did.
fn judges_alike(document: &Document, judged: &str) {
    let list = Rules::parse(&document.rules.clone().unwrap().join("\n")).unwrap();
    let judged = file(judged);
    let mut rows = 0;
    for row in judged.lines().skip(1) {
        let [user, client_id, action, topic, expected] =
            row.split(',').collect::<Vec<_>>().try_into().unwrap();
        let username = Some(user).filter(|user| !user.is_empty());
        let client = Client {
            client_id,
            username,
            address: None,
        };
        let action = match action {
            "publish" => Action::Publish,
            "receive" => Action::Receive,
            "subscribe" => Action::Subscribe,
            other => panic!("{other}"),
        };
        let own = rules_of(document, username).decide(&client, action, topic);
        let decision = own.or_else(|| list.decide(&client, action, topic));
        let expected = match expected {
            "allow" => Effect::Allow,
            _ => Effect::Deny,
        };
        assert_eq!(
            decision.map(|decision| decision.effect),
            Some(expected),
            "{row}"
        );
        rows += 1;
    }
    assert!(rows > 50, "{rows} rows");
}

/// That each of these passwords, and no other, is that of its user: by the code that reads password files.
fn have_passwords(users: &[UserEntry], passwords: &[(&str, &str)]) {
    let folder = std::env::temp_dir().join(format!("herald-import-{}", std::process::id()));
    let text: String = users
        .iter()
        .flat_map(|user| {
            user.hashes
                .iter()
                .map(|hash| format!("{}:{hash}\n", user.name))
        })
        .collect();
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}-{}", passwords.len(), text.len()));
    fs::write(&path, text).unwrap();
    let users = Users::read_file(Path::new(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    for (user, password) in passwords {
        assert_eq!(users.check(user, password.as_bytes()), Some(true), "{user}");
        assert_eq!(users.check(user, b"no"), Some(false), "{user}");
    }
}

#[test]
fn password_files_of_mosquitto_let_the_same_users_in() {
    for (name, passwords) in [
        (
            "mosquitto-passwd-2.0",
            &[("ann", "secret"), ("bob", "hunter2"), ("carol", "pässword")][..],
        ),
        (
            "mosquitto-passwd-2.1",
            &[("ann", "secret"), ("bob", "hunter2")],
        ),
    ] {
        let imported = password_file(&file(name), false).unwrap();
        check(&imported);
        assert_eq!(said(&imported), Vec::<String>::new());
        assert_eq!(imported.document.users.len(), passwords.len());
        have_passwords(&imported.document.users, passwords);
    }
}

#[test]
fn files_of_mosquitto_before_2_0_need_that_weak_hashes_are_accepted() {
    let text = file("mosquitto-passwd-1.6");
    let imported = password_file(&text, false).unwrap();
    assert!(imported.document.users.is_empty());
    assert_eq!(imported.left_out.len(), 1);
    let imported = password_file(&text, true).unwrap();
    let hash = &user(&imported.document, "ann").hashes[0];
    assert!(stored_as(hash).is_err());
    assert_eq!(
        stored_as_with(hash, WeakHashes::Accept),
        Ok(StoredAs::Password)
    );
}

#[test]
fn files_of_this_broker_are_read_with_all_their_lines() {
    let text = authentication::with_user("", "ann", b"pw", authentication::Storage::Scram).unwrap();
    let text = authentication::with_user(&text, "bob", b"pw", authentication::Storage::Argon2id);
    let imported = password_file(&text.unwrap(), false).unwrap();
    let users = &imported.document.users;
    assert_eq!((users[0].hashes.len(), users[1].hashes.len()), (2, 1));
    have_passwords(users, &[("ann", "pw"), ("bob", "pw")]);
}

#[test]
fn an_access_control_list_judges_as_mosquitto_does() {
    let passwords = file("mosquitto-passwd-2.0");
    let acl = file("mosquitto-acl");
    let imported = mosquitto(Some(&passwords), Some(&acl), false).unwrap();
    check(&imported);
    assert_eq!(said(&imported), Vec::<String>::new());
    assert_eq!(imported.document.users.len(), 3);
    assert!(!user(&imported.document, "ann").hashes.is_empty());
    judges_alike(&imported.document, "mosquitto-acl-judged.csv");
    // The same without users, whose rules are in the list then.
    let imported = mosquitto(None, Some(&acl), false).unwrap();
    check(&imported);
    judges_alike(&imported.document, "mosquitto-acl-judged.csv");
}

#[test]
fn errors_and_remarks_of_two_files_say_which_one() {
    let error = mosquitto(Some("ann"), None, false).unwrap_err();
    assert_eq!(error.at, "passwords, line 1");
    let error = mosquitto(None, Some("topic"), false).unwrap_err();
    assert_eq!(error.at, "acl, line 1");
    let imported = mosquitto(Some("ann:$6$a$b"), Some("topic a/%u"), false).unwrap();
    let at: Vec<&str> = imported.left_out.iter().map(|left| &*left.at).collect();
    assert_eq!(at, ["passwords, line 1", "acl, line 1"]);
}

#[test]
fn dynamic_security_judges_as_mosquitto_does() {
    let imported = dynsec(&file("dynamic-security.json")).unwrap();
    check(&imported);
    let document = &imported.document;
    judges_alike(document, "dynamic-security-judged.csv");
    have_passwords(
        &document.users,
        &[
            ("admin", "adminpw"),
            ("ann", "annpw2"),
            ("press-17", "secret"),
        ],
    );
    let press = user(document, "press-17");
    assert_eq!(press.client_ids.as_deref(), Some("press-17"));
    assert_eq!(press.groups, ["sensors"]);
    assert!(!user(document, "eve").enabled);
    assert_eq!(user(document, "admin").note, "Dynsec admin user");
    // Its roles have other priorities than those of ann.
    let fay = user(document, "fay");
    assert!(fay.groups.is_empty());
    assert_eq!(fay.rules[0], "deny publish plant/reports/secret");
    assert_eq!(group(document, "staff").includes, ["guarded", "readers"]);
    assert_eq!(
        group(document, "sensors").rules,
        [
            "allow publish plant/%u/data",
            "allow subscribe-only eq:plant/commands"
        ]
    );
    let said = said(&imported);
    for part in [
        "$CONTROL/dynamic-security/#",
        "always unsubscribe",
        "\"fay\" are copied",
    ] {
        assert!(
            said.iter().any(|line| line.contains(part)),
            "{part}: {said:?}"
        );
    }
    assert!(
        said.iter()
            .all(|line| !line.contains("copied") || !line.contains("\"ann\""))
    );
}

#[test]
fn what_dynamic_security_2_1_has_besides_is_read_or_said() {
    let imported = dynsec(&file("dynamic-security-2.1.json")).unwrap();
    check(&imported);
    let document = &imported.document;
    have_passwords(&document.users, &[("ann", "secret"), ("bob", "annpw2")]);
    let ann = user(document, "ann");
    assert_eq!(ann.note, "Ann: of the plant");
    assert_eq!(ann.groups, ["Plant", "role-Plant"]);
    assert_eq!(group(document, "Plant").includes, ["role-Plant"]);
    assert!(group(document, "role-Plant").priority > group(document, "Plant").priority);
    assert_eq!(user(document, "bob").client_ids, None);
    assert_eq!(
        document.rules.as_deref().unwrap(),
        [
            "allow all publish",
            "allow all receive",
            "allow all subscribe-only"
        ]
    );
    let at: Vec<&str> = imported.left_out.iter().map(|left| &*left.at).collect();
    assert_eq!(
        at,
        [
            "roles[0].allowwildcardsubs",
            "roles[0].acls[1]",
            "roles[0].acls[2]",
            "clients[1].roles[0].rolename",
            "clients[1].clientid",
            "groups",
            "defaultACLAccess.unsubscribe",
            "kicklist",
        ]
    );
}

#[test]
fn priorities_count_whatever_the_order_of_the_file() {
    let text = r#"{
        "roles": [
            {"rolename": "a", "acls": [
                {"acltype": "subscribePattern", "topic": "p/#", "priority": 9, "allow": true},
                {"acltype": "publishClientSend", "topic": "x/#", "priority": 1, "allow": true},
                {"acltype": "publishClientSend", "topic": "x/y", "priority": 5, "allow": false},
                {"acltype": "SubscribeLiteral", "topic": "p/q", "priority": 1, "allow": false},
                {"acltype": "publishClientSend", "topic": "x/y", "priority": 7, "allow": true}
            ]},
            {"rolename": "b", "acls": [
                {"acltype": "publishClientSend", "topic": "x/#", "allow": false}
            ]}
        ],
        "groups": [{"groupname": "g", "roles": [{"rolename": "a", "priority": 1}, {"rolename": "b", "priority": 2}]}],
        "clients": [
            {"username": "ann", "roles": [{"rolename": "a", "priority": 1}, {"rolename": "b", "priority": 2}]},
            {"username": "bob", "roles": [{"rolename": "a"}, {"rolename": "b"}]}
        ],
        "anonymousGroup": "g"
    }"#;
    let imported = dynsec(text).unwrap();
    check(&imported);
    let document = &imported.document;
    let a = [
        "deny publish x/y",
        "allow publish x/#",
        "deny subscribe-only eq:p/q",
        "allow subscribe-only p/#",
    ];
    assert_eq!(group(document, "a").rules, a);
    assert_eq!(user(document, "ann").groups, ["a", "b"]);
    assert!(group(document, "b").priority > group(document, "a").priority);
    // Of equal priorities the first in the file counts, which is another order than that of ann.
    assert_eq!(user(document, "bob").groups, Vec::<String>::new());
    assert_eq!(user(document, "bob").rules[..4], a);
    // In the order of names `a` would count first.
    assert_eq!(group(document, "g").includes, Vec::<String>::new());
    assert_eq!(group(document, "g").rules[0], "deny publish x/#");
    let list = document.rules.as_deref().unwrap();
    assert_eq!(list[0], "deny anonymous publish x/#");
    assert_eq!(list[list.len() - 1], "deny all subscribe-only");
    let at: Vec<&str> = imported.left_out.iter().map(|left| &*left.at).collect();
    assert_eq!(at, ["roles[0].acls[4]", "clients[1]", "group \"g\""]);
}

#[test]
fn mistakes_of_dynamic_security_have_their_path_and_no_value() {
    for (text, at) in [
        ("[]", ""),
        ("{\"clients\": {}}", "clients"),
        ("{\"clients\": [\"hunter2\"]}", "clients[0]"),
        ("{\"clients\": [{}]}", "clients[0].username"),
        (
            "{\"clients\": [{\"username\": \"a\", \"password\": 7}]}",
            "clients[0].password",
        ),
        (
            "{\"clients\": [{\"username\": \"a\", \"encoded_password\": \"hunter2\"}]}",
            "clients[0].encoded_password",
        ),
        (
            "{\"roles\": [{\"rolename\": \"r\", \"acls\": [{}]}]}",
            "roles[0].acls[0].acltype",
        ),
        ("{\"clients\": [\n\"hunter2}", "line 2"),
    ] {
        let error = dynsec(text).unwrap_err();
        assert_eq!(error.at, at, "{text}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn users_of_emqx_keep_their_passwords() {
    let read = |name: &str, format, hash: &str| {
        let hash: EmqxHash = hash.parse().unwrap();
        let imported = emqx_users(&file(name), format, &hash, true).unwrap();
        check(&imported);
        assert_eq!(said(&imported), Vec::<String>::new());
        imported.document.users
    };
    let users = read("emqx-users-bcrypt.json", TableFormat::Json, "bcrypt");
    have_passwords(&users, &[("ann", "secret")]);
    let users = read(
        "emqx-users-pbkdf2-sha256.csv",
        TableFormat::Csv,
        "pbkdf2-sha256:4096",
    );
    have_passwords(&users, &[("ann", "secret")]);

    let users = read(
        "emqx-users-sha256-prefix.csv",
        TableFormat::Csv,
        "sha256-prefix",
    );
    assert_eq!((users[0].superuser, users[1].superuser), (true, false));
    // `authentication` has a test that this is the hash of "mypassword3".
    assert_eq!(
        users[0].hashes,
        [
            "$sha256-prefix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$tsdDVFp4F66Mj2JDcdX18DcyNLsP82uP+/Gbzg4Gq3U="
        ]
    );
    let users = read(
        "emqx-users-sha256-suffix.json",
        TableFormat::Json,
        "sha256-suffix",
    );
    assert_eq!(
        users[0].hashes,
        [
            "$sha256-suffix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$pcUvyUgNJfawwW6eYRYhQSltlRGI7srAaOn3DNYaPec="
        ]
    );
    for user in &users {
        let stored = stored_as_with(&user.hashes[0], WeakHashes::Accept);
        assert_eq!(stored, Ok(StoredAs::Password));
    }
}

#[test]
fn rules_of_emqx_become_the_list_for_everybody() {
    let imported = emqx(None, Some(&file("emqx-acl.conf")), false).unwrap();
    check(&imported);
    assert_eq!(
        imported.document.rules.as_deref().unwrap(),
        [
            "allow user \"dashboard\" subscribe $SYS/#",
            "allow address 127.0.0.1 all $SYS/# #",
            "deny all subscribe $SYS/# eq:# eq:+/#",
            "allow user \"ann\" all plant/#",
            "deny client \"gw-7\" publish plant/#",
            "deny client \"test-*\" publish plant/#",
            "allow client \"gw-*\" and address 10.1.0.0/16,::1 publish gateways/%c/#",
            "allow all publish users/%u/out \"a b/c\"",
            "deny all retain live/#",
            "deny all all #",
        ]
    );
    let at: Vec<&str> = imported.left_out.iter().map(|left| &*left.at).collect();
    assert_eq!(at, ["acl, line 12", "acl, line 14", "acl, line 15"]);
}

/// All readers, whatever the text is for; what they make has to be readable.
fn read_all(text: &str) {
    let hash = |name: &str| name.parse::<EmqxHash>().unwrap();
    let read = [
        password_file(text, true),
        mosquitto_acl(text, Vec::new()),
        dynsec(text),
        emqx_acl(text),
        emqx_users(text, TableFormat::Csv, &hash("bcrypt"), true),
        emqx_users(text, TableFormat::Csv, &hash("sha256-prefix"), true),
        emqx_users(text, TableFormat::Json, &hash("pbkdf2-sha512:1"), true),
    ];
    for imported in read.iter().flatten() {
        check(imported);
    }
}

const FILES: [&str; 10] = [
    "mosquitto-passwd-1.6",
    "mosquitto-passwd-2.0",
    "mosquitto-passwd-2.1",
    "mosquitto-acl",
    "dynamic-security-2.1.json",
    "emqx-acl.conf",
    "emqx-users-bcrypt.json",
    "emqx-users-pbkdf2-sha256.csv",
    "emqx-users-sha256-prefix.csv",
    "emqx-users-sha256-suffix.json",
];

#[test]
fn files_that_end_anywhere_are_read_or_refused() {
    for name in FILES {
        let text = file(name);
        for (end, _) in text.char_indices() {
            read_all(&text[..end]);
        }
    }
}

#[test]
fn time_is_in_proportion_to_the_length() {
    const COUNT: usize = 10_000;
    let many = |item: &dyn Fn(usize) -> String, between: &str| {
        let items: Vec<String> = (0..COUNT).map(item).collect();
        items.join(between)
    };
    let roles = many(
        &|n| {
            format!(
                "{{\"rolename\":\"r{n}\",\"acls\":[{{\"acltype\":\"publishClientSend\",\"topic\":\"t\",\"allow\":{}}}]}}",
                n % 2 == 0
            )
        },
        ",",
    );
    let groups = many(
        &|n| format!("{{\"groupname\":\"r{n}\",\"clients\":[{{\"username\":\"u{n}\"}}]}}"),
        ",",
    );
    let of_user = many(
        &|n| format!("{{\"rolename\":\"r{n}\",\"priority\":{n}}}"),
        ",",
    );
    let clients = many(
        &|n| format!("{{\"username\":\"u{n}\",\"roles\":[{{\"rolename\":\"r{n}\"}}]}}"),
        ",",
    );
    let begin = Instant::now();
    for text in [
        format!(
            "{{\"roles\":[{roles}],\"groups\":[{groups}],\"clients\":[{clients},{{\"username\":\"x\",\"roles\":[{of_user}]}}]}}"
        ),
        "[".repeat(1_000_000),
        "{\"a\":".repeat(200_000),
        "{allow, {'and', [".repeat(100_000),
        format!(
            "{{allow, {{'and', [{}]}}, all, [\"x\"]}}.",
            many(
                &|_| "{'or', [{user, \"a\"}, {user, \"b\"}]}".to_owned(),
                ","
            )
        ),
        format!(
            "{{allow, all, all, [{}]}}.",
            many(&|n| format!("\"t/{n}\""), ",")
        ),
        many(&|n| format!("user u{n}\ntopic deny t/{n}\n"), ""),
        many(&|n| format!("u{n}:$2b$x\n"), ""),
        format!(
            "user_id,password_hash\n{}",
            many(&|n| format!("u{n},$2b$x\n"), "")
        ),
    ] {
        read_all(&text);
    }
    // It takes a second or two without optimisation; a quadratic reader takes minutes.
    assert!(begin.elapsed() < Duration::from_secs(60));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn changed_files_are_read_or_refused(
        file in 0..FILES.len(),
        at in any::<proptest::sample::Index>(),
        length in 0_usize..20,
        new in "[\\[\\]{}\"',.:$#+%*a-z0-9 \n\\\\-]{0,12}",
    ) {
        let text: Vec<char> = self::file(FILES[file]).chars().collect();
        let begin = at.index(text.len());
        let end = (begin + length).min(text.len());
        let changed: String = text[..begin].iter().copied().chain(new.chars()).chain(text[end..].iter().copied()).collect();
        read_all(&changed);
    }
}
