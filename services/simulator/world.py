"""The simulated Meta as a whole: one scenario, what it did so far, what is still to come."""

import time
from typing import Any

from services.simulator.behaviour import Ambiguous, Behaviour, Clear, Refused, Verdict
from services.simulator.delivery import Delivery
from services.simulator.dice import Dice
from services.simulator.ledger import Acceptance, Ledger, Unclear
from services.simulator.life import Life, live
from services.simulator.request import Message
from services.simulator.scenario import Scenario
from services.simulator.updates import Update


class World:
    """Decides about sends, keeps the books, sets lives in motion."""

    def __init__(self, secret: str, waba_id: str, default_url: str | None) -> None:
        self._default_url = default_url
        self.scenario = Scenario()
        self.ledger = Ledger()
        self._lost = self._repeated = 0
        self.subscribed: set[str] = set()
        self.registered: set[str] = set()
        self.delivery = Delivery(secret, waba_id, self.scenario.webhooks)
        self.change(self.scenario)

    def change(self, scenario: Scenario) -> None:
        """Behave so from now on. Limits, chance and the account start anew; the ledger stays."""
        url = scenario.webhooks.url or self._default_url
        webhooks = scenario.webhooks.model_copy(update={"url": url})
        self.scenario = scenario.model_copy(update={"webhooks": webhooks})
        self.behaviour = Behaviour(self.scenario)
        self.subscribed.clear()
        self.registered.clear()
        self.delivery.change(webhooks)

    def clear(self) -> None:
        """Forget what was accepted, the counts, and the statuses that are still to come."""
        self.ledger = Ledger()
        self._lost = self._repeated = 0
        self.delivery.forget()

    def judge(self, message: Message) -> Verdict:
        """Decide about a message that has just arrived, and write down what is not accepted."""
        now = time.monotonic()
        self.ledger.request(message.number, now)
        verdict = self.behaviour.judge(message.number, message.to, now)
        if isinstance(verdict, Refused):
            self.ledger.refuse(verdict.code)
        elif isinstance(verdict, Ambiguous):
            self._note(message, verdict)
        return verdict

    def accept(
        self, message: Message, verdict: Clear | Ambiguous, dice: Dice
    ) -> tuple[str, Update | None]:
        """Accept, and set the statuses going.

        Returns the message's id and the status to post before the reply, if any.
        """
        failure = self.behaviour.failure(message.to)
        acceptance = Acceptance(
            serial=self.ledger.next_serial(),
            number=message.number,
            to=message.to,
            token=message.token,
            at=time.time(),
            category=message.category,
            answer=verdict.rule.kind.value if isinstance(verdict, Ambiguous) else "200",
            withheld=isinstance(verdict, Ambiguous) and verdict.withheld,
            failure=failure.code if failure else None,
        )
        self.ledger.accept(acceptance, time.monotonic())
        wamid = acceptance.wamid
        if acceptance.withheld or not self.delivery.active:
            return wamid, None
        certain = isinstance(verdict, Ambiguous)
        life = live(self.scenario.webhooks, dice, failure, certain=certain)
        return wamid, self._start(acceptance, wamid, life)

    def stats(self) -> dict[str, Any]:
        """What happened since the last clear."""
        webhooks = {
            "outstanding": self.delivery.outstanding,
            "posted": self.delivery.posted,
            "acknowledged": self.delivery.acknowledged,
            "lost": self._lost,
            "repeated": self._repeated,
        }
        return {
            **self.ledger.stats(),
            "webhooks": webhooks,
            "cpu_seconds": time.process_time(),
        }

    def _note(self, message: Message, verdict: Ambiguous) -> None:
        self.ledger.unclear.append(
            Unclear(
                token=message.token,
                to=message.to,
                kind=verdict.rule.kind,
                accepted=verdict.rule.accepted,
                withheld=verdict.withheld,
                at=time.time(),
            )
        )

    def _start(self, acceptance: Acceptance, wamid: str, life: Life) -> Update | None:
        self._lost += life.lost
        self._repeated += life.repeated
        steps = life.steps
        at = acceptance.at
        early = None
        if life.early and steps:
            early, steps = Update(acceptance, wamid, steps[0].status, int(at)), steps[1:]
        self.delivery.schedule(
            [
                (delay, Update(acceptance, wamid, status, int(at + happened)))
                for delay, status, happened in steps
            ]
        )
        return early
