"""pgqrs's example in its own spelling: one process triggers, another works, a person approves.

    python examples/pgqrs_zip_files.py trigger photos 2024-   prints the run's id
    python examples/pgqrs_zip_files.py worker                 until Ctrl-C; kill it at any time
    python examples/pgqrs_zip_files.py approve RUN ada
    python examples/pgqrs_zip_files.py status RUN
    python examples/pgqrs_zip_files.py                        all of it in one process

Runs are kept in ./simpleworkflow.db, or where SIMPLEWORKFLOW_URL says.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from simpleworkflow.compat.pgqrs import RunStatus, Store, WorkflowContext, consumer, open_store, workflow

FILES = ["2023-a.jpg", "2024-a.jpg", "2024-b.jpg"]


@dataclass
class ZipParams:
    bucket: str
    prefix: str


@dataclass
class Approval:
    by: str


@dataclass
class ZipResult:
    archive: str
    files: list[str]
    approved_by: str


async def zip_files(ctx: WorkflowContext, params: ZipParams) -> ZipResult:
    files = await ctx.step("list_files", lambda: [name for name in FILES if name.startswith(params.prefix)])
    approval: Approval = await ctx.pause(f"may {len(files)} files be zipped?", Approval)
    archive = await ctx.step("zip", lambda: f"{params.bucket}/{params.prefix}.zip")
    return ZipResult(archive, files, approval.by)


async def trigger(store: Store, bucket: str, prefix: str) -> str:
    await store.create_workflow("zip_files")
    return await workflow("zip_files").trigger(ZipParams(bucket, prefix)).execute(store)


async def work(store: Store) -> None:
    worker = await consumer("worker-1", 8080, "zip_files").handler(zip_files).create(store)
    await worker.poll_forever()


async def show(store: Store, run_id: str) -> None:
    run = await workflow("zip_files").get_run(run_id, store)
    match run.status:
        case RunStatus.SUCCESS:
            print(run.status, run.output)
        case RunStatus.ERROR:
            print(run.status, run.error)
        case _:
            print(run.status)


async def until_paused(store: Store, run_id: str) -> None:
    while True:
        if (await workflow("zip_files").get_run(run_id, store)).status is RunStatus.PAUSED:
            return
        await asyncio.sleep(0.05)


async def everything(store: Store) -> None:
    run_id = await trigger(store, "photos", "2024-")
    await show(store, run_id)
    working = asyncio.create_task(work(store))
    await until_paused(store, run_id)
    await show(store, run_id)
    await store.resume(run_id, Approval(by="ada"))
    await workflow("zip_files").result(run_id, store, timeout="30s")
    await show(store, run_id)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def main(arguments: list[str]) -> None:
    async with open_store() as store:
        match arguments:
            case ["trigger", bucket, prefix]:
                print(await trigger(store, bucket, prefix))
            case ["worker"]:
                await work(store)
            case ["approve", run_id, name]:
                await store.resume(run_id, Approval(by=name))
            case ["status", run_id]:
                await show(store, run_id)
            case []:
                await everything(store)
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:]))
    except KeyboardInterrupt:
        pass
