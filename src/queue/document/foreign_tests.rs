//! Items of other programs.

use super::*;

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
