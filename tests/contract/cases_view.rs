//! C10, C14: the view of a queue, and texts byte for byte.

use dlock::backend::Observer;
use dlock::lock::{Holder, LockStatus, Mode};

use crate::bench::{Bench, name, slots};
use crate::cases::cases;

cases![
    c10_inspect_shows_holders_and_waiters_in_order[Queue, Shared],
    c10_inspect_shows_slots_and_tokens[],
    c10_unused_name_is_an_empty_queue[],
    c10_looking_changes_nothing[],
    c10_list_is_sorted_and_keeps_to_the_prefix[],
    c10_observer_sees_each_change[],
    c14_names_come_back_and_stay_apart[],
    c14_texts_of_a_holder_come_back[],
    c14_published_value_comes_back[],
];

async fn c10_inspect_shows_holders_and_waiters_in_order(b: Bench) {
    let lock = b.name("a");
    let mut members = Vec::new();
    for mode in [Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Shared] {
        members.push(b.enter(b.ask_as(&lock, mode)).await);
    }
    let line = b.line(&lock).await;
    assert_eq!((line.name, line.holders.len()), (lock, 2));
    for (i, (entry, member)) in line.holders.iter().chain(&line.waiters).zip(&members).enumerate() {
        let holder = &member.request.holder;
        assert_eq!(entry.claim, Some(member.id()), "{i} in order");
        assert_eq!(entry.mode, Some(member.request.mode));
        assert_eq!((&entry.host, &entry.user), (&Some(holder.host.clone()), &Some(holder.user.clone())));
        assert_eq!((entry.pid, &entry.command), (Some(holder.pid), &Some(holder.command.clone())));
        assert!(!entry.foreign && entry.since.is_some());
        assert_eq!(entry.ttl.is_some(), member.claim.ttl().is_some());
        assert_eq!(entry.ahead, (i >= 2).then(|| u32::try_from(i).expect("small")));
    }
}

async fn c10_inspect_shows_slots_and_tokens(b: Bench) {
    let lock = b.name("a");
    for _ in 0..2 {
        let member = b.enter(b.ask_as(&lock, slots(2))).await;
        let given = member.held().await.names[0];
        let line = b.line(&lock).await;
        let entry = line.holders.iter().find(|e| e.claim == Some(member.id())).expect("shown");
        assert_eq!((entry.slot, entry.token), (given.slot, Some(given.token)));
    }
}

async fn c10_unused_name_is_an_empty_queue(b: Bench) {
    let line = b.line(&b.name("never")).await;
    assert!(line.is_empty() && line.name == b.name("never"));
    let client = b.connect().await;
    assert_eq!(client.list(b.name("").as_str(), b.soon()).await.expect("lists"), []);
}

async fn c10_looking_changes_nothing(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    let client = b.connect().await;
    for _ in 0..5 {
        assert_eq!(b.ids(&lock).await, (vec![holder.id()], b.shown(&[waiter.id()])));
        assert_eq!(client.list(lock.as_str(), b.soon()).await.expect("lists").len(), 1);
    }
    waiter.waits().await;
    holder.leave().await;
    waiter.held().await;
}

async fn c10_list_is_sorted_and_keeps_to_the_prefix(b: Bench) {
    let client = b.connect().await;
    let mut members = Vec::new();
    for suffix in ["p/c", "p/a", "q", "p/b"] {
        members.push(b.hold(b.ask(&b.name(suffix))).await);
    }
    let waiter = b.enter(b.ask(&b.name("p/a"))).await;
    let listed = client.list(b.name("p/").as_str(), b.soon()).await.expect("lists");
    let names: Vec<_> = listed.iter().map(|line| line.name.clone()).collect();
    assert_eq!(names, [b.name("p/a"), b.name("p/b"), b.name("p/c")]);
    let waiters: Vec<_> = listed[0].waiters.iter().filter_map(|e| e.claim).collect();
    assert_eq!(waiters, b.shown(&[waiter.id()]));
    members.remove(0).leave().await;
    assert_eq!(client.list(b.name("p/").as_str(), b.soon()).await.expect("lists").len(), 2);
}

/// Returns the next status that the observer reports and `wanted` accepts.
async fn shown(b: &Bench, eye: &mut Box<dyn Observer>, wanted: impl Fn(&LockStatus) -> bool) -> LockStatus {
    let look = async {
        loop {
            let line = eye.next().await.expect("observes");
            if wanted(&line) {
                return line;
            }
        }
    };
    b.by(b.soon(), look).await.expect("the change is shown soon")
}

async fn c10_observer_sees_each_change(b: Bench) {
    let lock = b.name("a");
    let client = b.connect().await;
    let mut eye = client.observe(&lock).await.expect("observes");
    shown(&b, &mut eye, LockStatus::is_empty).await;
    let holder = b.hold(b.ask(&lock)).await;
    shown(&b, &mut eye, |line| line.holders.len() == 1).await;
    let waiter = b.enter(b.ask(&lock)).await;
    if !b.shown(&[waiter.id()]).is_empty() {
        let line = shown(&b, &mut eye, |line| line.waiters.len() == 1).await;
        assert_eq!(line.holders[0].claim, Some(holder.id()));
    }
    holder.leave().await;
    let has = |line: &LockStatus, id| line.holders.first().is_some_and(|holder| holder.claim == Some(id));
    shown(&b, &mut eye, |line| line.waiters.is_empty() && has(line, waiter.id())).await;
    waiter.leave().await;
    shown(&b, &mut eye, LockStatus::is_empty).await;
}

/// All names of the table are held at once by claims of their own, so no two are one lock.
async fn c14_names_come_back_and_stay_apart(b: Bench) {
    let table = [
        "x".repeat(200),
        "x".repeat(199),
        "a".into(),
        "A".into(),
        "a/b".into(),
        "a/c".into(),
        "a/b/".into(),
        "a//b".into(),
        "/a".into(),
        ".".into(),
        "..".into(),
        "../a".into(),
        ".a".into(),
        "a.".into(),
        "a b".into(),
        "a  b".into(),
        "a\u{2003}b".into(),
        "a%2Fb".into(),
        "a%".into(),
        "%".into(),
        "a:b".into(),
        "a{b}".into(),
        "a*?[b]".into(),
        "a\\b".into(),
        "a'b\"c`$d".into(),
        "-a".into(),
        "a.lock".into(),
        "é".into(),
        "e\u{301}".into(),
        "日本".repeat(33),
        "🦀".repeat(50),
    ];
    let client = b.connect().await;
    let mut members = Vec::new();
    for text in &table {
        let lock = name(text);
        members.push(b.hold(b.ask(&lock)).await);
        assert_eq!(b.line(&lock).await.name, lock);
    }
    let mut expected = table.to_vec();
    expected.sort();
    let listed = client.list("", b.soon()).await.expect("lists");
    assert_eq!(listed.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), expected);
}

async fn c14_texts_of_a_holder_come_back(b: Bench) {
    let long = "0123456789abcdef".repeat(256);
    let all_controls: String = (0..32u8).map(char::from).chain(['\u{7f}', '\u{9b}']).collect();
    let table = [
        "",
        " ",
        &long,
        "two\nlines\r\n",
        &all_controls,
        "\u{1b}[31mred",
        "日本 🦀 é",
        "a=b;c\"d'\\",
        "{}[],:",
    ];
    for (i, text) in table.into_iter().enumerate() {
        let lock = b.name(&i.to_string());
        let mut request = b.ask(&lock);
        request.holder = Holder {
            host: text.into(),
            pid: u32::MAX,
            user: text.into(),
            command: text.into(),
            label: Some(text.into()),
            replace: true,
            ..Holder::default()
        };
        let holder = b.hold(request.clone()).await;
        let mut other = b.ask(&lock);
        other.holder.label = None;
        let _waiter = b.enter(other).await;
        let line = b.line(&lock).await;
        let entry = &line.holders[0];
        let seen = [&entry.host, &entry.user, &entry.command, &entry.label];
        assert_eq!(seen, [&Some(text.to_owned()); 4], "{text:?}");
        assert_eq!(
            (entry.pid, line.waiters.iter().any(|waiter| waiter.label.is_some())),
            (Some(u32::MAX), false)
        );
        holder.leave().await;
    }
}

async fn c14_published_value_comes_back(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    for value in ["10.0.0.1:80", "", "two\nlines \u{7} 日本"] {
        let published = b.connect().await.publish(&lock, holder.id(), value, b.soon()).await;
        assert!(published.expect("publishes"), "it holds");
        assert_eq!(b.line(&lock).await.holders[0].label.as_deref(), Some(value));
    }
    holder.still_holds().await;
}
