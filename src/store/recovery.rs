//! Reading back what was open when the process ended, however it ended: names, snapshot, spilled buckets, records.
//!
//! The snapshot holds what must be remembered longer than records are kept: which parts of which windows are used, and
//! which messages were taken. Damage is met record by record: what does not decode is reported and left out.

use std::cell::Cell;
use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::accounts::Accounts;
use super::calendar::Calendar;
use super::database::{self, Budget};
use super::engine::{Count, Engine, Setup};
use super::error::Doing;
use super::held::Held;
use super::journal::{Journal, Replay, Stored};
use super::kept::Kept;
use super::lazy::Lazy;
use super::ledger::{Ledger, Losses};
use super::names::{self, NameReader, Names};
use super::quarantine::Aside;
use super::record::{self, Record, put_key, read_key};
use super::redelivery::Redelivery;
use super::replay::{self, Replaying};
use super::reserve::Reserve;
use super::schema::{META_SALVAGE, META_SNAPSHOT, META_STORE_ID};
use super::state::State;
use super::wear::Wear;
use super::{StoreError, frame, segment};
use crate::model::bucketer::{BucketKey, Bucketer, Group, Open, Opened, sensor_of};
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{ClockState, SensorName, Timestamp, Used};

/// Most sensors in a snapshot: a bound on what damaged bytes can ask for.
const MAX_SENSORS: usize = 16 << 20;

/// Opens the file and rebuilds everything in memory.
pub(super) fn recover(setup: Setup, reader: &NameReader) -> Result<Engine, StoreError> {
    let budget = Budget::at(&setup.path, setup.max_bytes);
    let db = database::open_writer(&setup.path, budget, &setup.blocks)?;
    names::fill_sums(&db)?;
    let mut state = rebuild(&db, setup, budget, reader)?;
    recall_time(&db, &mut state)?;
    state.count_stored();
    let (frames, _) = database::log_frames(&db)?;
    Ok(Engine::new(db, state, Wear::new(frames)))
}

/// Rebuilds everything in memory. Only reads.
pub(super) fn rebuild(db: &Connection, setup: Setup, budget: Budget, reader: &NameReader) -> Result<State, StoreError> {
    let names = Names::load(db, setup.max_sensors, reader)?;
    let Replay { journal, last, newest, records } = Journal::read(db)?;
    let aside = Aside::beside(&setup.path);
    let mut state = State {
        next_segment: segment::last(db)? + 1,
        lazy: Lazy::new(setup.write_behind, setup.pool.clone()),
        kept: Kept::new(setup.keep.0, setup.keep.1),
        setup,
        budget,
        held_to: Cell::new(0),
        names,
        bucketer: Bucketer::default(),
        redelivery: Redelivery::default(),
        journal,
        seq: last,
        snapshot_seq: 0,
        backlog: backlog(db, newest)?,
        accounts: Accounts::default(),
        has_accounts: false,
        ledger: Ledger::load(db)?,
        damage: Vec::new(),
        losses: Losses::default(),
        reserve: Reserve::load(db)?,
        is_tight: false,
        aside,
        thinned_until: 0,
        spills: HashMap::new(),
        next_spill: 0,
        moment: None,
        calendar: Calendar::default(),
        calendar_is_new: false,
        held: Held::default(),
        stamps: HashMap::default(),
    };
    let mut known = load_snapshot(db, &mut state)?;
    let spilled_until = load_spills(db, &mut state)?;
    let mut replaying = Replaying::of(db, &records, spilled_until)?;
    for stored in records {
        let replayed = replay::read(db, &stored)?.and_then(|record| {
            known = record.accounts.or(known);
            replaying.apply(&mut state, stored.seq, &record)
        });
        if let Err(why) = replayed {
            state.damaged(format!("journal record {} is damaged and left out: {why}", stored.seq));
        }
    }
    state.lazy.recovered(replaying.finish(), &mut state.bucketer)?;
    state.redelivery.started();
    (state.accounts, state.has_accounts) = (known.unwrap_or_default(), known.is_some());
    Ok(state)
}

/// What is held, and what is known of the clock. The next boot's steady line begins after everything that is stored.
fn recall_time(db: &Connection, state: &mut State) -> Result<(), StoreError> {
    let (held, held_until) = Held::load(db)?;
    state.held = held;
    state.calendar = Calendar::load(db)?;
    let sealed_until = segment::until(db)?.max(state.lazy.until());
    let (line, all): (Vec<&Open>, Vec<&Open>) =
        state.bucketer.open_iter().partition(|open| open.key.is_held() || open.clock == ClockState::Unsynced);
    let latest =
        |opens: &[&Open], others| opens.iter().map(|open| open.latest()).max().max(Some(others)).unwrap_or_default();
    let (line, all) = (latest(&line, held_until), latest(&all, sealed_until));
    state.calendar.catch_up(line, all);
    Ok(())
}

/// What waits for delivery as the newest record tells it; counted if there is none that does, or rows are being brought
/// back from a damaged file, which no record tells of.
fn backlog(db: &Connection, newest: Option<Stored>) -> Result<Count, StoreError> {
    let salvaged: bool = db
        .query_row("SELECT EXISTS (SELECT 1 FROM meta WHERE id = ?1)", [META_SALVAGE], |row| row.get(0))
        .doing("read what was brought back")?;
    let Some(stored) = newest.filter(|_| !salvaged) else { return segment::count(db) };
    match replay::read(db, &stored)? {
        Ok(Record { segments: Some(segments), backlog, accounts: Some(accounts), .. }) => {
            Ok(Count { segments, buckets: backlog, samples: accounts.stored })
        }
        _ => segment::count(db),
    }
}

/// The random id born with the file, eight hex digits; made at the first call.
pub(super) fn store_id(db: &Connection) -> Result<String, StoreError> {
    let read = "SELECT data FROM meta WHERE id = ?1";
    let known: Option<Vec<u8>> =
        db.query_row(read, [META_STORE_ID], |row| row.get(0)).optional().doing("read the store id")?;
    if let Some(id) = known {
        return String::from_utf8(id)
            .map_err(|_| StoreError::Damaged { what: "store id".to_owned(), why: "not text".to_owned() });
    }
    let id = format!("{:08x}", fastrand::u32(..));
    db.execute("INSERT INTO meta (id, data) VALUES (?1, ?2)", params![META_STORE_ID, id.as_bytes()])
        .doing("store the store id")?;
    Ok(id)
}

/// Writes what must outlive the records.
pub(super) fn store_snapshot(db: &Connection, seq: u64, state: &State) -> Result<(), StoreError> {
    let mut payload = Vec::new();
    varint::put(&mut payload, seq);
    varint::put(&mut payload, state.bucketer.used().count() as u64);
    for (sensor, used) in state.bucketer.used() {
        varint::put(&mut payload, sensor.into());
        used.encode(&mut payload);
    }
    state.redelivery.encode(&mut payload);
    state.accounts.encode(&mut payload);
    let sql = "INSERT INTO meta (id, data) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET data = ?2";
    db.prepare_cached(sql)
        .and_then(|mut s| s.execute(params![META_SNAPSHOT, frame::seal(&payload)]))
        .doing("store the snapshot")?;
    Ok(())
}

/// Writes an open bucket, with these blocks, outside the journal, as it is after record `seq`.
pub(super) fn store_spill(db: &Connection, id: i64, open: &Open, blocks: &[u8], seq: u64) -> Result<(), StoreError> {
    let mut payload = Vec::new();
    varint::put(&mut payload, seq);
    put_key(&mut payload, &open.key, None, false);
    varint::put(&mut payload, open.due.as_millis() as u64);
    payload.push(record::opening_flags(&Opened { due: open.due, late: open.late, clock: open.clock }));
    varint::put_bytes(&mut payload, blocks);
    let mut insert = db.prepare_cached("INSERT INTO spill (id, data) VALUES (?1, ?2)").doing("spill a bucket")?;
    insert.execute(params![id, frame::seal(&payload)]).doing("spill a bucket")?;
    Ok(())
}

/// A spilled bucket is sealed, or spilled anew.
pub(super) fn delete_spill(db: &Connection, id: i64) -> Result<(), StoreError> {
    let mut delete = db.prepare_cached("DELETE FROM spill WHERE id = ?1").doing("delete a spilled bucket")?;
    delete.execute([id]).doing("delete a spilled bucket")?;
    Ok(())
}

/// Takes the snapshot in; the accounts that it holds.
fn load_snapshot(db: &Connection, state: &mut State) -> Result<Option<Accounts>, StoreError> {
    let read = "SELECT data FROM meta WHERE id = ?1";
    let data: Option<Vec<u8>> =
        db.query_row(read, [META_SNAPSHOT], |row| row.get(0)).optional().doing("read the snapshot")?;
    let Some(data) = data else { return Ok(None) };
    let mut parse = || -> Result<Option<Accounts>, Damaged> {
        let payload = frame::open(&data)?;
        let mut input = Reader::new(&payload);
        let seq = input.varint()?;
        for _ in 0..input.bounded(MAX_SENSORS)? {
            let sensor = input.u32()?;
            state.bucketer.restore_used(sensor, Used::decode(&mut input)?)?;
        }
        state.redelivery = Redelivery::decode(&mut input)?;
        state.snapshot_seq = seq;
        state.seq = state.seq.max(seq);
        (input.left() > 0).then(|| Accounts::decode(&mut input)).transpose()
    };
    parse().or_else(|why| {
        state.damaged(format!(
            "the snapshot is damaged and left out: {why} (a bucket may take an identity again; upstream such a conflict is seen and re-keyed)"
        ));
        Ok(None)
    })
}

/// Takes back spilled buckets; until which record each is complete.
fn load_spills(db: &Connection, state: &mut State) -> Result<HashMap<BucketKey, u64>, StoreError> {
    let mut until = HashMap::new();
    let mut select = db.prepare("SELECT id, data FROM spill ORDER BY id").doing("read spilled buckets")?;
    let mut rows = select.query([]).doing("read spilled buckets")?;
    while let Some(row) = rows.next().doing("read spilled buckets")? {
        let id: i64 = row.get(0).doing("read spilled buckets")?;
        let data = row.get_ref(1).doing("read spilled buckets")?.as_blob().unwrap_or_default();
        state.next_spill = state.next_spill.max(id);
        let restored = frame::open(data).and_then(|payload| {
            let (seq, group) = read_spill(&payload)?;
            let (names, policy) = (state.names.reader(), policy_of(&state.setup, &state.names, group.key.sensor));
            state.bucketer.restore(group, seq + 1, policy, |row| names.weight(row))?;
            Ok((seq, group.key))
        });
        match restored {
            Ok((seq, key)) => {
                until.insert(key, seq);
                state.spills.insert(key, id);
            }
            Err(why) => state.damaged(format!("spilled bucket {id} is damaged and left out: {why}")),
        }
    }
    Ok(until)
}

fn read_spill(payload: &[u8]) -> Result<(u64, Group<'_>), Damaged> {
    let mut input = Reader::new(payload);
    let seq = input.varint()?;
    let (key, _) = read_key(&mut input, None)?;
    let due =
        i64::try_from(input.varint()?).ok().and_then(Timestamp::from_millis).ok_or(Damaged("due time out of range"))?;
    let opened = record::opening(due, input.byte()?);
    Ok((seq, Group { key, opened: Some(opened), block: input.bytes()? }))
}

pub(super) fn policy_of<'a>(setup: &'a Setup, names: &Names, sensor: u32) -> &'a crate::model::BucketPolicy {
    names
        .reader()
        .sensor(sensor_of(sensor))
        .map_or(&setup.policies.default, |name: SensorName| setup.policies.of(&name))
}
