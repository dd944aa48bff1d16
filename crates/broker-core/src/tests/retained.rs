//! Retained messages.

use super::check;
use super::world::World;

#[test]
fn an_empty_payload_removes_the_retained_message() {
    check(
        "
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0 retain
            retained: keep t
        p PUBLISH t \"\" 1 #2 retain
            retained: remove t
            p PUBACK #2 0x10
        ",
    );
}

#[test]
fn those_who_subscribed_before_get_it_without_the_flag() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0
            a SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0 retain
            retained: keep t
            a PUBLISH t x 0
        ",
    );
}

#[test]
fn retain_as_published_keeps_the_flag() {
    check(
        "
        a connects
            a CONNACK 0x00
        a SUBSCRIBE #1 t 0r
            a SUBACK #1 [00]
        p connects
            p CONNACK 0x00
        p PUBLISH t x 0 retain
            retained: keep t
            a PUBLISH t x 0 retain
        p PUBLISH t y 0
            a PUBLISH t y 0
        ",
    );
}

#[test]
fn retained_and_durable_are_both_waited_for() {
    check(
        "
        d connects durable
            session of d: claim
            inbox of d: begin
            d CONNACK 0x00
        d SUBSCRIBE #1 t 1
            inbox of d: subscribe t
            d SUBACK #1 [01]
        p connects
            p CONNACK 0x00
        the store waits
        p PUBLISH t x 1 #1 retain
            retained: keep t
            inboxes: publish t
        the store fails
            p PUBACK #1 0x83
            dropped: t store_failed
        ",
    );
}

#[test]
fn sessions_of_all_loops_get_retained_messages_in_one_order() {
    for topic in ["t", "u", "v", "w", "x", "y"] {
        let mut world = World::new();
        for client in ["a", "p"] {
            world.play(&format!("{client} connects"));
        }
        for client in ["b", "q"] {
            world.play(&format!("{client} connects on 1"));
        }
        world.play(&format!("a SUBSCRIBE #1 {topic} 0"));
        world.play(&format!("b SUBSCRIBE #1 {topic} 0"));
        let got = |effects: &[String], client: &str| -> Vec<String> {
            let of_client = effects.iter().filter_map(|line| line.strip_prefix(client));
            of_client.map(str::to_owned).collect()
        };
        world.play(&format!("at once p PUBLISH {topic} 1 0 retain"));
        let effects = world.play(&format!("q PUBLISH {topic} 2 0 retain"));
        assert_eq!(got(&effects, "a").len(), 2, "{effects:?}");
        assert_eq!(got(&effects, "a"), got(&effects, "b"));
        // One publisher's keep their order, with RETAIN and without.
        for sent in ["3 0", "4 1 #4 retain", "5 1 #5", "6 0"] {
            world.play(&format!("at once p PUBLISH {topic} {sent}"));
        }
        let effects = world.play(&format!("p PUBLISH {topic} 7 0 retain"));
        let expected: Vec<String> = (3..8).map(|n| format!(" PUBLISH {topic} {n} 0")).collect();
        assert_eq!(got(&effects, "a"), expected);
        assert_eq!(got(&effects, "b"), expected);
        assert_eq!(got(&effects, "p"), [" PUBACK #4", " PUBACK #5"]);
    }
}
