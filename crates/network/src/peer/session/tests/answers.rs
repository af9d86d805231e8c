//! A peer that answers, but not to the end, or more than once.

use super::*;
use crate::peer::tests::sessions_over;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{
    AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, copy, duplex, split,
};
use tokio::time::sleep;

/// What follows the first half of an answer.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Nothing,
    /// A byte a second.
    Trickle,
    End,
}

/// Carries as many bytes as are `left`, which the test sets meanwhile, then goes on by `rest`.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    left: Arc<AtomicUsize>,
    rest: Rest,
) {
    let mut byte = [0];
    while from.read_exact(&mut byte).await.is_ok() {
        if left.fetch_sub(1, Ordering::Relaxed) <= 1 {
            match rest {
                Rest::Nothing => pending().await,
                Rest::Trickle => sleep(Duration::from_secs(1)).await,
                Rest::End => return drop(to.shutdown().await),
            }
            left.store(1, Ordering::Relaxed);
        }
        if to.write_all(&byte).await.is_err() {
            return;
        }
    }
}

/// Both sides, `b` behind one that carries what it sends; and how many bytes of it will still come.
async fn sessions_with(rest: Rest) -> (Stream, Stream, Arc<AtomicUsize>) {
    let ((a, near), (far, b)) = (duplex(1 << 16), duplex(1 << 16));
    let ((near_in, near_out), (far_in, far_out)) = (split(near), split(far));
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    tokio::spawn(carry(far_in, near_out, Arc::clone(&left), rest));
    tokio::spawn(async move {
        let (mut near_in, mut far_out) = (near_in, far_out);
        copy(&mut near_in, &mut far_out).await
    });
    let eth = EthVersion::Eth72;
    let protocols = vec![Protocol::new("eth", eth.number(), eth.length())];
    let (a, b) = sessions_over(a, b, protocols.clone(), protocols).await;
    (a, b, left)
}

#[tokio::test(start_paused = true)]
async fn half_an_answer_and_silence_a_byte_a_second_or_the_end_fail_the_request_within_30_seconds()
{
    for (rest, seconds) in [(Rest::Nothing, 30), (Rest::Trickle, 30), (Rest::End, 0)] {
        let (a, mut b, left) = sessions_with(rest).await;
        let (a, peer) = beside_script(a, &mut b).await;
        let answer = peer.ask(&Request::Bodies(vec![B256::ZERO])).unwrap();
        b.reader.next().await.unwrap();
        b.reader.next().await.unwrap();
        let noise = (0..1_000_u32).flat_map(|n| niwaki_crypto::keccak256(n.to_be_bytes()).0);
        let noise: Vec<u8> = noise.collect();
        left.store(noise.len() / 2, Ordering::Relaxed);
        let start = Instant::now();
        b.writer
            .send(base::FIRST_SHARED + number::GET_BLOCK_BODIES + 1, &noise)
            .await
            .unwrap();
        assert!(answer.await.unwrap().is_err(), "{rest:?}");
        assert_eq!(start.elapsed().as_secs(), seconds, "{rest:?}");
        let error = a.ended.await.unwrap();
        let is_silent = matches!(error, PeerError::Silent);
        assert_eq!(is_silent, seconds > 0, "{rest:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_twice_is_dropped_as_a_late_one_is() {
    let all = EthVersion::ALL;
    let (a, mut b) = sessions(&all, &all).await;
    let (a, peer) = beside_script(a, &mut b).await;
    let answer = peer.ask(&Request::Bodies(vec![B256::ZERO])).unwrap();
    for _ in 0..2 {
        let id = base::FIRST_SHARED + number::GET_BLOCK_BODIES + 1;
        b.writer
            .send(id, &Items::default().answer(0))
            .await
            .unwrap();
    }
    assert!(answer.await.unwrap().is_ok());
    sleep(Duration::from_secs(10)).await;
    assert!(!a.ended.is_finished());
}
