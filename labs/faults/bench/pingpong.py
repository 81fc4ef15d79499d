# SPDX-License-Identifier: MIT
#
"""pingpong.py PORT ITERS [SERVER]: an RC ping-pong with pyverbs, the server on
rxe0, the client on rxe1. A program in another language for the saboteur."""
import pickle
import socket
import sys

from pyverbs.addr import AHAttr, GlobalRoute, GID
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

SIZE = 4096


def connect(port, server):
    if server:
        return socket.create_connection((server, port))
    with socket.create_server(("", port)) as listener:
        return listener.accept()[0]


def exchange(sock, mine):
    sock.sendall(pickle.dumps(mine).ljust(256, b"\0"))
    data = b""
    while len(data) < 256:
        more = sock.recv(256 - len(data))
        if not more:
            sys.exit("the peer went away")
        data += more
    return pickle.loads(data)


def wait(cq, done, opcode, count):
    """Until @count completions of @opcode have come."""
    while done[opcode] < count:
        _, wcs = cq.poll()
        for wc in wcs or ():
            if wc.status != e.IBV_WC_SUCCESS:
                sys.exit(f"completion: status {wc.status}")
            done[wc.opcode] += 1


def main():
    port, iters = int(sys.argv[1]), int(sys.argv[2])
    server = sys.argv[3] if len(sys.argv) > 3 else None
    ctx = Context(name="rxe1" if server else "rxe0")
    pd = PD(ctx)
    mr = MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
    cq = CQ(ctx, 16)
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq,
                      cap=QPCap(max_send_wr=4, max_recv_wr=4))
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = 0
    sock = connect(port, server)
    with QP(pd, init, attr) as qp:
        sge = SGE(mr.buf, SIZE, mr.lkey)
        psn = 0x111111 if server else 0x222222
        gid = ctx.query_gid(1, 1)
        qp.to_init(attr)
        qp.post_recv(RecvWR(sg=[sge], num_sge=1))
        peer = exchange(sock, (qp.qp_num, psn, str(gid)))
        gr = GlobalRoute(dgid=GID(peer[2]), sgid_index=1)
        attr.ah_attr = AHAttr(gr=gr, is_global=1, port_num=1)
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = peer[0], peer[1], psn
        attr.path_mtu = e.IBV_MTU_4096
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout = 12, 14
        attr.retry_cnt, attr.rnr_retry = 6, 7
        qp.to_rts(attr)
        exchange(sock, "ready")
        done = {e.IBV_WC_SEND: 0, e.IBV_WC_RECV: 0}
        if server:
            qp.post_send(SendWR(sg=[sge], num_sge=1))
        for i in range(1, iters + 1):
            wait(cq, done, e.IBV_WC_RECV, i)
            if i < iters:
                qp.post_recv(RecvWR(sg=[sge], num_sge=1))
            if i < iters or not server:
                qp.post_send(SendWR(sg=[sge], num_sge=1))
        wait(cq, done, e.IBV_WC_SEND, iters)
        exchange(sock, "done")
    print(f"{iters} iterations")


main()
