//! The contents of a list.

use crate::backend::Backend as _;
use crate::queue::document::Items as _;
use crate::queue::document::tests::{Scene, id, name};

#[tokio::test(start_paused = true)]
async fn a_lock_of_the_same_name_under_another_prefix_is_not_listed() {
    let (scene, others) = (Scene::new(), Scene::new());
    others.hold(2).await;
    let theirs = others.fake.read(&name("a"), others.soon()).await.expect("reads").expect("an item");
    scene.fake.write("app:a", &theirs.bytes);
    assert_eq!(scene.client().list("", scene.soon()).await.expect("lists"), []);
    scene.hold(1).await;
    let listed = scene.client().list("", scene.soon()).await.expect("lists");
    let holders: Vec<_> = listed.iter().flat_map(|lock| &lock.holders).map(|entry| entry.claim).collect();
    assert_eq!(holders, [Some(id(1))]);
}
