//! The router over peers in memory, with time that stands still unless all wait.

use super::*;
use crate::peer::InboundRequest;
use crate::peer::tests::{Side, chain, sessions};
use crate::router::{GivenUp, Need, TryEnd};
use crate::stats::{RequestStats, Timed};
use crate::wire::{Answer, EthVersion, Items};
use niwaki_primitives::B256;
use tokio::sync::mpsc;

struct Network {
    router: RouterHandle,
    /// The ends of the connections that are the peers'.
    theirs: Vec<Side>,
    _ours: Vec<Side>,
    list: Option<watch::Sender<Arc<[Arc<Peer>]>>>,
    reports: mpsc::UnboundedReceiver<Event>,
    stats: Arc<Stats>,
}

impl Network {
    async fn start(peers: u8) -> Self {
        let (mut ours, mut theirs, mut list) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..peers {
            let (a, b) = sessions(&EthVersion::ALL, &EthVersion::ALL).await;
            let mut a = Side::start(a, number + 1, chain());
            let mut b = Side::start(b, 100, chain());
            list.push(a.peer().await);
            b.peer().await;
            ours.push(a);
            theirs.push(b);
        }
        let (list, receiver) = watch::channel(Arc::from(list));
        let (sender, reports) = mpsc::unbounded_channel();
        let stats = Arc::<Stats>::default();
        let report = move |event| sender.send(event).unwrap();
        let router = super::start(receiver, report, Arc::clone(&stats));
        tokio::task::yield_now().await;
        Self {
            router,
            theirs,
            _ours: ours,
            list: Some(list),
            reports,
            stats,
        }
    }

    fn requests(&self) -> RequestStats {
        self.stats.requests(RequestKind::Bodies)
    }

    /// A job for bodies.
    fn bodies(&self, items: u32) -> Job {
        let ask = Ask {
            kind: RequestKind::Bodies,
            items,
            need: Need::default(),
        };
        let request = |items: Range<u32>| {
            let hashes = items.map(|item| B256::with_last_byte(item.to_le_bytes()[0]));
            Request::Bodies(hashes.collect())
        };
        self.router.start(ask, request).unwrap()
    }

    /// Waits until one of the peers is asked.
    async fn asked(&mut self) -> (usize, InboundRequest) {
        loop {
            for (number, side) in self.theirs.iter_mut().enumerate() {
                if let Ok(request) = side.requests.try_recv() {
                    return (number, request);
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn reports(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.reports.try_recv().ok()).collect()
    }
}

fn answer_empty_bodies(request: InboundRequest, count: usize) {
    let mut items = Items::default();
    (0..count).for_each(|_| assert!(items.push(&[0xc2, 0xc0, 0xc0])));
    let message = items.answer(request.id);
    request.answer(message);
}

fn all() -> Outcome {
    Outcome::Items {
        missing: Vec::new(),
    }
}

async fn delivery(job: &mut Job) -> Delivery {
    match job.recv().await {
        Some(JobEvent::Answer(delivery)) => delivery,
        other => panic!("{other:?}"),
    }
}

async fn given_up(job: &mut Job) -> Vec<GivenUp> {
    match job.recv().await {
        Some(JobEvent::Done(given_up)) => given_up,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_asked_delivered_checked_and_done_and_its_bytes_are_counted() {
    let mut network = Network::start(1).await;
    let (sender, mut times) = mpsc::unbounded_channel();
    let timer = move |what, took| sender.send((what, took)).unwrap();
    network.stats.set_timer(timer);
    let mut job = network.bodies(3);
    let (_, request) = network.asked().await;
    assert_eq!(network.requests().in_flight, 1);
    let Request::Bodies(hashes) = &request.request else {
        panic!("{:?}", request.request);
    };
    assert_eq!(hashes.len(), 3);
    answer_empty_bodies(request, 3);
    let delivery = delivery(&mut job).await;
    let expected = RequestStats {
        answered: 1,
        ..RequestStats::default()
    };
    assert_eq!(network.requests(), expected);
    let timed = Timed::Request(RequestKind::Bodies);
    let (what, took) = times.try_recv().unwrap();
    // Time stands still but for the ticks of the router.
    assert!(what == timed && took <= TICK, "{what:?} {took:?}");
    assert_eq!(delivery.items, 0..3);
    let Answer::Bodies(bodies) = &delivery.answer else {
        panic!("{:?}", delivery.answer);
    };
    assert_eq!(bodies.len(), 3);
    job.outcome(&delivery.id, all());
    assert_eq!(given_up(&mut job).await, []);
    assert!(job.recv().await.is_none());
    assert!(job.next(Duration::ZERO).is_none());
    let (conn, conduct) = (ConnId(1), Conduct::Content);
    // Heads of two lists, the id, and three bodies of three bytes.
    let bytes = 12;
    let expected = [
        Event::Delivered { conn, bytes },
        Event::Conduct { conn, conduct },
    ];
    assert_eq!(network.reports(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_29_seconds_to_check_is_neither_late_nor_slow() {
    let mut network = Network::start(2).await;
    let mut job = network.bodies(1);
    let (_, request) = network.asked().await;
    answer_empty_bodies(request, 1);
    let delivery = delivery(&mut job).await;
    assert!(job.next(Duration::ZERO).is_none());
    tokio::time::sleep(Duration::from_secs(29)).await;
    job.outcome(&delivery.id, all());
    assert_eq!(given_up(&mut job).await, []);
    let reports = network.reports();
    assert_eq!(reports.len(), 2, "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_checked_within_30_seconds_is_asked_of_another_peer() {
    let mut network = Network::start(2).await;
    let mut job = network.bodies(1);
    let (first, request) = network.asked().await;
    answer_empty_bodies(request, 1);
    let unchecked = delivery(&mut job).await;
    let start = Instant::now();
    let (second, request) = network.asked().await;
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_ne!(first, second);
    // Too late.
    job.outcome(&unchecked.id, all());
    answer_empty_bodies(request, 1);
    let checked = delivery(&mut job).await;
    job.outcome(&checked.id, all());
    assert_eq!(given_up(&mut job).await, []);
    assert!(matches!(
        network.reports()[..],
        [Event::Delivered { .. }, Event::Conduct { .. }]
    ));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_loses_the_request_and_its_late_answer_is_no_breach() {
    let mut network = Network::start(2).await;
    let mut job = network.bodies(1);
    let (slow, late) = network.asked().await;
    // The other one repeats it, and has nothing.
    let (quick, repeated) = network.asked().await;
    assert_ne!(slow, quick);
    answer_empty_bodies(repeated, 0);
    let nothing = delivery(&mut job).await;
    let missing = std::iter::once(0..1).collect();
    job.outcome(&nothing.id, Outcome::Items { missing });
    let given_up = given_up(&mut job).await;
    let ends: Vec<TryEnd> = given_up[0].tries.iter().map(|one| one.end).collect();
    assert_eq!(ends, [TryEnd::Empty, TryEnd::Timeout]);
    let expected = RequestStats {
        answered: 1,
        timeouts: 1,
        ..RequestStats::default()
    };
    assert_eq!(network.requests(), expected);
    answer_empty_bodies(late, 1);
    let mut job = network.bodies(1);
    let (_, request) = network.asked().await;
    answer_empty_bodies(request, 1);
    delivery(&mut job).await;
    assert!(network.theirs.iter().all(|side| !side.ended.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_leaves_hands_its_requests_on_before_the_list_says_so() {
    let mut network = Network::start(2).await;
    let mut job = network.bodies(1);
    let (first, request) = network.asked().await;
    let start = Instant::now();
    network.theirs.remove(first).ended.abort();
    drop(request);
    let (_, request) = network.asked().await;
    assert!(start.elapsed() < Duration::from_millis(10));
    answer_empty_bodies(request, 1);
    let delivery = delivery(&mut job).await;
    job.outcome(&delivery.id, all());
    assert_eq!(given_up(&mut job).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_thread_waits_for_its_job() {
    let mut network = Network::start(1).await;
    let mut job = network.bodies(1);
    let thread = tokio::task::spawn_blocking(move || {
        let Some(JobEvent::Answer(delivery)) = job.next(Duration::MAX) else {
            panic!("no answer");
        };
        job.outcome(&delivery.id, all());
        job.next(Duration::MAX)
    });
    // While a thread blocks, the time of tests stands still.
    let request = network.theirs[0].requests.recv().await.unwrap();
    answer_empty_bodies(request, 1);
    let last = thread.await.unwrap();
    assert!(matches!(last, Some(JobEvent::Done(given_up)) if given_up.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_job_is_asked_no_further() {
    let mut network = Network::start(1).await;
    let job = network.bodies(128);
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(network.asked().await.1);
    }
    drop(job);
    asked
        .into_iter()
        .for_each(|request| answer_empty_bodies(request, 1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(network.theirs[0].requests.try_recv().is_err());
    assert_eq!(network.reports(), []);
}

#[tokio::test(start_paused = true)]
async fn when_the_network_stops_its_jobs_end_and_none_begins() {
    let mut network = Network::start(1).await;
    let mut job = network.bodies(2);
    let _open = network.asked().await;
    network.list = None;
    let given_up = given_up(&mut job).await;
    assert_eq!(given_up[0].items, 0..2);
    let ask = Ask {
        kind: RequestKind::Bodies,
        items: 1,
        need: Need::default(),
    };
    let refused = network.router.start(ask, |_| Request::Bodies(vec![]));
    assert_eq!(refused.unwrap_err(), JobError::Stopped);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_its_caller_finds_wrong_counts_once() {
    let mut network = Network::start(1).await;
    let mut job = network.bodies(1);
    let (_, request) = network.asked().await;
    answer_empty_bodies(request, 1);
    let delivery = delivery(&mut job).await;
    for _ in 0..2 {
        job.outcome(&delivery.id, Outcome::Wrong(Conduct::Lie));
    }
    let expected = RequestStats {
        answered: 1,
        wrong: 1,
        ..RequestStats::default()
    };
    assert_eq!(network.requests(), expected);
}
