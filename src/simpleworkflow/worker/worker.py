"""A worker: claims runs, executes them, and makes sure that each ends somewhere, whatever happens to it.

It runs on one event loop (its own thread's when embedded, the main thread's under the command line), with one more
thread for renewals. Stopping is in three acts: claim nothing more, let running code finish until the drain deadline,
then stop the rest and hand it back without burning an attempt. None of it waits for a dead database longer than a few
seconds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from ..config import Settings
from ..model import failure, moves
from ..model.moves import Ending, Outcome, Pause
from ..model.records import History, Lease, Renewal
from ..runtime.execute import Execution
from ..runtime.failing import Failures
from ..runtime.hints import Hint, Hinter
from ..runtime.journal import CAPACITY, Journal
from ..runtime.labels import about
from ..runtime.registry import Registry
from ..runtime.stage import Services
from ..runtime.stop import Stop
from ..runtime.tasks import install_task_factory
from ..runtime.threads import DaemonThreads
from ..runtime.unawaited import install as watch_unawaited
from ..store import Ledger
from ..store.operations import steps
from .claim import Claimer
from .failover import Failover
from .held_leases import HeldLeases
from .intake import Intake, Rest
from .metrics_server import Metrics
from .options import WorkerOptions
from .overdue import Overdue
from .process import own_identity, spare_collector
from .prune import pruning
from .relay_role import RelayRole
from .renew import LEAVING, Renewer
from .run_followups import confirm, hasten_undo, hold_refused, looking_up, prolong, tell_news, without_handler
from .schedule import Scheduler
from .shutdown import Shutdown
from .slots import Key, Slots, drain, key_of, stop_all, trial
from .stalls import watch_stalls
from .startup import introduce, say_ready, say_stopping, what_waits
from .sweep import sweeping

log = logging.getLogger("simpleworkflow.worker")

STOP_GRACE = 2.0


class Worker:
    def __init__(self, ledger: Ledger, registry: Registry, settings: Settings, options: WorkerOptions) -> None:
        self.identity = own_identity(options.name)
        self.stays_behind: str | None = None
        """When it has stopped: what is not in order, and what will become of that."""
        self._ledger = ledger
        self._registry = registry
        self._settings = settings
        self._clock = ledger.clock
        self._process_ends = options.process_ends
        self._keep = options.keep
        self._with_schedules = options.schedules
        self._relay = RelayRole(options.sink, options.relay, self.identity.id)
        self._slots = Slots(settings.concurrency)
        ledger.watch().waits = lambda: what_waits(len(self._slots))
        self._followups: set[asyncio.Task[None]] = set()
        self._held = HeldLeases()
        self._claimer = Claimer(
            ledger, registry, settings, worker=self.identity.id, spans=options.spans, any_type=options.fail_unknown
        )
        self._metrics = Metrics(
            options.metrics, self.identity.name, self._slots, self._held, self._claimer, settings.concurrency
        )
        self._meter = self._metrics.meter
        self._overdue = Overdue(settings.sweep_every)
        self._intake: Intake | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self.ready = asyncio.Event()

    # From other threads and signal handlers: only through the loop.

    def stop(self) -> None:
        """Stop gracefully; a second call stops waiting for running code."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        self._metrics.stopping()
        if self._intake is not None:
            self._intake.stop()

    def nudge(self) -> None:
        """Look for work, and at what is under way, now instead of at the next poll."""
        self._look()
        if len(self._held):
            self._renewer.look()

    def _look(self, after_work: bool = False) -> None:
        if self._intake is not None:
            self._intake.look(after_work)

    def is_idle(self, run_id: UUID, wakes: int, but_for_bodies: bool) -> bool:
        """Whether this run is under way here and only waits, knowing all that has happened to it."""
        execution = next((e for e in self._slots if e.lease.id == run_id), None)
        return execution is not None and execution.is_idle(but_for_bodies) and execution.post.wakes == wakes

    async def run(self) -> None:
        """Work until stopped."""
        async with self._metrics.serving(self._ledger):
            await self._work()

    async def _work(self) -> None:
        if self._process_ends:
            spare_collector()
        self._loop = loop = asyncio.get_running_loop()
        install_task_factory(loop, self._settings.log_errors)
        watch_unawaited()
        threads = self._settings.concurrency
        self._threads = DaemonThreads(threads, "simpleworkflow-run")
        # Steps have threads of their own: handlers that fill every thread would wait for their own steps for ever.
        self._step_threads = DaemonThreads(max(threads, 32), "simpleworkflow-step")
        self._hinter = Hinter(self._ledger)
        capacity = max(CAPACITY, 4 * threads)
        self._journal = Journal(self._ledger, self._hinter, self.identity.id, capacity=capacity, meter=self._meter)
        twin = self._ledger.twin()
        twin.timelines.on_new = lambda: self._safely(self._failover.changed)
        self._renewer = Renewer(
            twin,
            self._held,
            identity=self.identity,
            spans=self._claimer.spans,
            load=lambda: self._slots.load(self._claimer.routed()) | self._claimer.failing.told(),
            every=self._claimer.shortest_lease() / 6,
            tell=lambda news: self._safely(self._hear_renewals, news),
        )
        self._services = self._make_services()
        self._intake = self._make_intake()
        self._failover = Failover(
            self._ledger, self._held, self._journal, self.identity.id, hear=self._hear_renewals, go_on=self._look
        )
        await introduce(self._ledger, self._claimer, self.identity, self._stopping, self._registry.outbox_rules)
        own = self._registry.schedules_of(self._claimer.routed()) if self._with_schedules else None
        self._scheduler = Scheduler(self._ledger, self._hinter, self._settings, own, self._look, self._meter)
        await self._scheduler.introduce(self._stopping)
        self._renewer.start()
        self._stalls = watch_stalls(loop, self.identity.id)
        roles = [
            *sweeping(self._ledger, self._settings, self._stopping, self._look, self.identity.id, self._meter),
            *self._overdue.start(self._ledger, self._stopping, self._meter),
            loop.create_task(self._ledger.listen(self._hear)),
            *self._relay.start(self._ledger, self._stopping),
            *self._scheduler.start(self._stopping, self.identity.host),
            *pruning(self._ledger, self._keep, self._settings, self._stopping, self.identity.id, self._meter),
        ]
        self.ready.set()
        say_ready(self._ledger, self._claimer, self.identity, self._settings.concurrency, own)
        try:
            await self._intake.run()
        finally:
            await self._shut_down(roles)

    def _make_intake(self) -> Intake:
        return Intake(
            self._ledger,
            self._claimer,
            self._settings,
            slots=self._slots,
            journal=self._journal,
            held_leases=self._held,
            start=self._begin,
            give_back=self._give_back,
            lose=self._lose,
            meter=self._meter,
        )

    def _make_services(self) -> Services:
        return Services(
            clock=self._clock,
            loop=self._loop,
            home_thread=(threading.get_ident(),),
            threads=self._threads,
            step_threads=self._step_threads,
            prolong=partial(prolong, self._ledger, self.identity.id),
            write=self._journal.write,
            look_up=looking_up(self._ledger).submit,
            max_payload=self._settings.max_payload,
            on_changed=self._settings.on_changed,
            on_misfit=self._settings.on_misfit,
            failures=Failures(self._settings.log_errors, self._registry.error_hooks, self.identity.id),
            is_fresh=self._held.is_fresh,
            confirm=partial(confirm, self._ledger, self._held, self.identity.id),
            on_resident=self._look,
            home=self._ledger.home,
            by_name=self._registry.by_name,
            worker=self.identity.id,
        )

    def _about(self, lease: Lease) -> dict[str, object]:
        return about(lease, worker=self.identity.id)

    def _give_back(self, lease: Lease, delay: float) -> None:
        workflow = self._registry.find(lease.type)
        self._settle(lease, moves.hand_back(lease, None if workflow is None else workflow.timeout, delay=delay))

    def _lose(self, lease: Lease) -> None:
        """Claimed once more under the very lease that it has here: no write could tell the two executions apart."""
        if (older := self._slots.find(*key_of(lease))) is not None:
            older.stop(Stop.LOST)

    def _begin(self, lease: Lease, history: History | None, at_once: bool) -> Rest:
        """Start a run, in a task of its own or at once in the calling one. What is returned, if anything, is the rest
        of its code, for that task to await."""
        workflow = self._registry.find(lease.type)
        if workflow is None or workflow.handler is None:
            self._settle(lease, without_handler(lease, self._services.failures))
            return None
        history = history or History({}, [], {})
        execution = Execution(lease, workflow, history, self._services, self._ended, self._code_over)
        if lease.epoch > 1:
            for older in self._slots.older(lease):
                older.stop(Stop.LOST)  # the lease was taken from us and came back: nobody renews the old one any more
        if at_once:
            return self._try_at_once(execution)
        self._slots.take(execution)
        if lease.is_suspect:
            self._loop.call_later(trial(lease, self._settings.suspect_seconds), self._trust, key_of(lease))
        execution.start()
        return None

    def _try_at_once(self, execution: Execution) -> Rest:
        """Runs that wait for nothing need neither a task nor a slot of their own."""
        rest = execution.try_at_once()
        if not execution.is_code_over:
            self._slots.take(execution)
        return rest

    def _trust(self, key: Key) -> None:
        if self._slots.trust(key) and self._intake is not None:
            self._intake.look_for_suspects()

    def _ended(self, execution: Execution, ending: Ending | Pause | None) -> None:
        if ending is None or execution.reason is Stop.LOST:
            self._lost(execution.lease)
            return
        self._settle(execution.lease, ending, execution.started)

    def _settle(self, lease: Lease, ending: Ending | Pause, started: float | None = None) -> None:
        self._journal.post(ending, partial(self._settled, lease, ending, started or self._clock.passed()))

    def _settled(
        self, lease: Lease, ending: Ending | Pause, started: float, outcome: Outcome | None, error: Exception | None
    ) -> None:
        if outcome is Outcome.DONE:
            self._held.remove(lease)
            if lease.deadline_in is not None and (isinstance(ending, Pause) or not ending.status.is_terminal):
                self._overdue.expect(lease.deadline_in - (self._clock.passed() - started))
            return
        if error is not None and not (isinstance(ending, Ending) and ending.move in {"fail", "release"}):
            # The database refuses this very entry: say so in the run instead of leaving it to rot.
            log.error("the ending of run %s was refused: %s", lease.id, error, extra=self._about(lease))
            as_json, line = failure.describe(error)
            self._settle(
                lease, moves.fail(lease, as_json, f"its ending was refused: {line}"[:500], elapsed=ending.elapsed)
            )
            return
        if outcome is Outcome.WOKEN:
            self._send(self._go_on(lease, started))
        elif error is not None:
            told = "the ending of run %s is refused for good; it is held for an operator: %s"
            log.error(told, lease.id, error, extra=self._about(lease))
            self._metrics.refused(lease)
            has_begun = not isinstance(ending, Ending) or ending.started
            last = moves.release(lease, elapsed=ending.elapsed) if has_begun else moves.hand_back(lease, None)
            self._send(hold_refused(self._ledger, self._held, self.identity.id, lease, error, last))
        elif outcome is Outcome.LOST:
            self._held.remove(lease)
            told = "run %s (%s) was no longer ours; its ending was discarded"
            log.info(told, lease.id, lease.type, extra=self._about(lease))
            self._acknowledge(lease)

    def _send(self, followup: Coroutine[Any, Any, None]) -> None:
        """What a stop waits for, for a moment."""
        self._followups.add(task := self._loop.create_task(followup))
        task.add_done_callback(self._followups.discard)

    async def _go_on(self, lease: Lease, started: float) -> None:
        """Something happened while the run was being paused: execute it again under the same lease, with the news."""
        try:
            state, history = await self._ledger.run(steps.reload(lease.id, lease.epoch, self.identity.id))
        except Exception as error:
            told = "run %s is handed back, its history cannot be read: %s"
            log.warning(told, lease.id, error, extra=self._about(lease))
            self._settle(lease, moves.release(lease, elapsed=self._clock.passed() - started))
            return
        passed = self._clock.passed() - started
        if self._stopping.is_set() or state.held or not state.owned:
            self._settle(lease, moves.release(lease, elapsed=passed))  # lost: that says so, and acknowledges a cancel
            return
        left = None if lease.deadline_in is None else lease.deadline_in - passed
        claimed = lease.claimed_at + timedelta(seconds=passed)
        renewed = lease._replace(wakes=state.wakes, claimed_at=claimed, deadline_in=left)
        try:
            self._begin(renewed, history, at_once=False)
        except Exception:
            told = "run %s (%s) could not go on and is handed back"
            log.exception(told, lease.id, lease.type, extra=self._about(lease))
            self._settle(lease, moves.release(lease, elapsed=passed, delay=1.0))

    def _code_over(self, execution: Execution) -> None:
        lease = execution.lease
        if self._slots.leave(execution):
            self._trust(key_of(lease))
            self._look(after_work=True)
        if execution.reason is Stop.LOST:
            self._acknowledge(lease)

    def _acknowledge(self, lease: Lease) -> None:
        """If it was cancelled, its undo run need not wait for the lease to end."""
        workflow = self._registry.find(lease.type)
        if workflow is not None and workflow.on_cancel is not None:
            self._send(hasten_undo(self._ledger, self._hinter, self.identity.id, lease))

    def _hear(self, kind: str) -> None:
        self._scheduler.hear(kind)
        self._relay.look()
        if kind in {Hint.READY, Hint.CHANGED}:
            self._look()
        if kind in {Hint.CONTROL, Hint.CHANGED} and len(self._held):
            self._renewer.look()

    def _hear_renewals(self, news: list[Renewal]) -> None:
        refused: dict[Key, Renewal] = {}
        for renewal in news:
            execution = self._slots.find(renewal.id, renewal.epoch)
            if execution is None:
                if renewal.held or not renewal.owned:
                    refused[renewal.id, renewal.epoch] = renewal
            elif not renewal.owned:
                execution.stop(Stop.LOST)
            elif renewal.held:
                execution.stop(Stop.HELD)
            elif renewal.wakes != execution.post.wakes:
                self._loop.create_task(tell_news(self._ledger, execution))
        for lease in self._intake.drop(refused) if refused and self._intake is not None else ():
            if refused[key_of(lease)].owned:
                self._give_back(lease, 0.0)  # held
            else:
                self._lost(lease)
                self._acknowledge(lease)

    def _lost(self, lease: Lease) -> None:
        self._held.remove(lease)
        self._metrics.lost(lease)

    def _safely(self, function: object, *args: object) -> None:
        with suppress(RuntimeError):  # the worker's loop has ended
            self._loop.call_soon_threadsafe(function, *args)  # type: ignore[arg-type]

    async def _shut_down(self, roles: list[asyncio.Task[None]]) -> None:
        say_stopping(self.identity, len(self._slots), self._settings.drain, is_embedded=not self._process_ends)
        shutdown = Shutdown(self._ledger, self._journal, self._slots, self._held, self._followups, self.identity.id)
        try:
            await self._end_executions()
            await shutdown.from_all(process_ends=self._process_ends)
        finally:
            self.stays_behind = shutdown.stays_behind()
            await self._leave(roles)

    async def _end_executions(self) -> None:
        """Running code may finish until the drain deadline; the rest is stopped."""
        self._renewer.withdraw()
        await drain(self._slots, self._hurry, self._settings.drain)
        await self._relay.end(STOP_GRACE)
        await stop_all(self._slots, STOP_GRACE)

    async def _leave(self, roles: list[asyncio.Task[None]]) -> None:
        for execution in self._slots:
            execution.abandon()
        self._failover.stop()
        for task in (late := [*roles, *self._followups]):
            task.cancel()
        await asyncio.wait(late, timeout=1.0)
        await self._hinter.stop()
        self._renewer.stop()
        self._stalls.stop()
        for pool in (self._threads, self._step_threads):
            pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._renewer.join, LEAVING)
        await self._ledger.close()
