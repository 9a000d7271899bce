//! Claims that come late to say how they stand, and then cannot.

use super::*;

/// One service, whose claims come late to say how they stand, and then cannot.
#[derive(Debug)]
struct Doubtful(Arc<Services>);

#[derive(Debug)]
struct DoubtfulClaim(Arc<dyn Claim>);

#[async_trait]
impl PartBackend for Doubtful {
    fn backend(&self) -> &'static str {
        self.0.backend()
    }
    async fn enter(&self, part: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        Ok(Arc::new(DoubtfulClaim(self.0.enter(part, deadline).await?)))
    }
    async fn withdraw(&self, part: &Request, deadline: Moment) -> Result<()> {
        self.0.withdraw(part, deadline).await
    }
}

#[async_trait]
impl Claim for DoubtfulClaim {
    fn ttl(&self) -> Option<Duration> {
        self.0.ttl()
    }
    async fn changed(&self, _: Option<&ClaimState>) -> Result<ClaimState> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(down("follow the queue"))
    }
    async fn renew(&self, deadline: Moment) -> Result<Moment> {
        self.0.renew(deadline).await
    }
    async fn leave(&self, succeeded: bool, deadline: Moment) -> Result<()> {
        self.0.leave(succeeded, deadline).await
    }
    fn anchors(&self) -> Result<Vec<OwnedFd>> {
        self.0.anchors()
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_heard_of_a_part_outlives_a_late_look_that_failed() {
    let services = Services::new();
    let asked = request(1, &["a"]);
    let parts = parts_by(&asked, |place| asked.names[place].clone());
    let backend = Arc::new(Doubtful(Arc::clone(&services)));
    let steps = Arc::new(Steps::new(backend, parts, services.clock));
    let advancing = tokio::spawn({
        let (steps, deadline) = (Arc::clone(&steps), services.soon());
        async move { steps.advance(deadline).await }
    });
    assert_eq!(services.queue("a").await.0, [id(1)]);
    let told = services.hold("a", 1).await.changed(None).await.expect("answers");
    assert!(matches!(told, ClaimState::Held(_)));
    steps.progress().entered[0].state = Some(told.clone());
    advancing.await.expect("no panic").expect("it has entered");
    assert_eq!(steps.progress().entered[0].state, Some(told));
}
