//! Items of other programs.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_foreign_item_is_waited_for_and_left_alone() {
    let scene = Scene::new();
    scene.fake.write("a", b"mine");
    let waiter = scene.enter(1).await.expect("waits");
    let ClaimState::Waiting { holder: Some(holder), .. } = state(&waiter).await else {
        panic!("does not wait")
    };
    assert!(holder.foreign);
    let other = scene.enter(2).await.expect("waits");
    other.leave(false, scene.soon()).await.expect("leaves");
    assert!(!scene.client().evict_foreign(&name("a"), id(9), scene.soon()).await.expect("another"));
    scene.fake.forget("a");
    assert!(holds(&waiter).await);
    assert_eq!(scene.queue("a").await, [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn waiter_behind_foreign_item_stays_out_after_leaving() {
    let scene = Scene::new();
    scene.fake.write("a", b"theirs");
    let waiter = scene.enter(1).await.expect("waits");
    scene.fake.forget("a");
    // The attempt to enter, which the task in the background makes, is slow.
    scene.fake.expect(&[Some(Mishap::Held)]);
    scene.sleep(Duration::from_secs(2)).await;
    waiter.renew(scene.soon()).await.expect("it has no entry");
    waiter.leave(false, scene.soon()).await.expect("leaves");
    scene.fake.resume();
    scene.sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.queue("a").await, []);
}

#[tokio::test(start_paused = true)]
async fn waiter_behind_foreign_item_is_refused_by_another_kind() {
    let scene = Scene::new();
    scene.fake.write("a", b"theirs");
    let waiter = scene.enter(1).await.expect("waits");
    let seen = state(&waiter).await;
    scene.fake.forget("a");
    let slots = Mode::Slots(std::num::NonZeroU32::MIN);
    let other = Request { mode: slots, ..request(2, &["a"]) };
    let _other = scene.client().enter(&other, scene.soon()).await.expect("enters");
    let refused = waiter.changed(Some(&seen)).await.expect_err("kinds do not mix");
    assert_eq!((refused.kind, refused.is_final), (ErrorKind::Mismatch, true));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_item_is_removed_by_force() {
    let scene = Scene::new();
    scene.fake.write("a", b"mine");
    let shown = scene.queue("a").await;
    scene.fake.write("a", b"mine");
    let client = scene.client();
    let removed = client.evict_foreign(&name("a"), shown[0], scene.soon()).await.expect("evicts");
    assert!(!removed && scene.fake.has("a"), "it was written again since");
    let shown = scene.queue("a").await;
    assert!(client.evict_foreign(&name("a"), shown[0], scene.soon()).await.expect("evicts"));
    assert!(!scene.fake.has("a"));
}
