//! A worker whose API server has too much to do, and says how long it wants to be left alone.

use roadstead_e2e::link::Failing;
use tokio::time::Instant;

use super::fixture::{EAST, MANAGER, WEST, alone};
use crate::shared::eventually;

/// East has the most room, so every job is sent there as long as it is healthy. A wide job fits only there.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "64"), (EAST, "48"), (WEST, "2")];
const WIDE: usize = 8;
/// For how long east wants to be left alone each time.
const RETRY_AFTER: u32 = 3;
/// How many refusals are waited for before it is looked how long they took: fewer than there are jobs.
const REFUSALS: u32 = 6;

/// Spec: safety F23, I12
#[test]
fn a_worker_that_says_429_is_left_alone_as_long_as_it_asks_and_holds_up_nobody() {
    alone("busy", EAST_IS_LARGER, |room| async move {
        let link = room.shared.stage.link(EAST).unwrap();
        room.submit(room.job("calm", "1", 1)).await;
        assert_eq!(room.started("calm").await, EAST);
        room.job_is(MANAGER, "calm", "Complete").await;

        let (began, before) = (Instant::now(), link.failed());
        link.fail(Failing::Busy(RETRY_AFTER));
        let wide: Vec<String> = (0..WIDE).map(|index| format!("wide-{index}")).collect();
        for name in &wide {
            room.submit(room.job(name, "4", 1)).await;
        }
        let refused = eventually(|| async {
            let refused = link.failed() - before;
            (refused >= REFUSALS).then_some(refused)
        })
        .await;
        // Two in each pause, because another may be under way while one is answered.
        let pauses = began.elapsed().as_secs() / u64::from(RETRY_AFTER) + 1;
        assert!(
            u64::from(refused) <= 2 * pauses + 2,
            "{refused} refusals in {:?}",
            began.elapsed()
        );

        room.submit(room.job("narrow", "1", 1)).await;
        assert_eq!(room.started("narrow").await, WEST);
        room.job_is(MANAGER, "narrow", "Complete").await;
        link.heal();
        for name in &wide {
            assert_eq!(room.started(name).await, EAST);
            let ended = room.job_is(MANAGER, name, "Complete").await;
            assert_eq!(ended.status.unwrap().succeeded, Some(1), "{name}");
        }
        room.is_swept().await;
    });
}
