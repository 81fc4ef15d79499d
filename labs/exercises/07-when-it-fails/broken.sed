# What ails each of the ten: the starter is ten.c with these. One block, one illness.
/^static void patient_1(/,/^}/s/IBV_ACCESS_LOCAL_WRITE, 16/0, 16/
/^static void patient_2(/,/^}/s/receive(&w, qp\[1\]/receive(\&w, qp[0]/
/^static void patient_3(/,/^}/{
	s/IBV_WR_SEND, IBV_SEND_SIGNALED,$/IBV_WR_SEND, 0,/
	s/await(&w, 2)/await(\&w, 1)/
}
/^static void patient_4(/,/^}/s/IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE/IBV_ACCESS_LOCAL_WRITE/
/^static void patient_5(/,/^}/s/receive(&w, qp\[1\], 1, SIZE)/receive(\&w, qp[1], 1, 2048)/
/^static void patient_6(/,/^}/{
	/OK(ibv_dereg_mr(w.mr));/d
	s/^\tOK(ibv_dealloc_pd(w.pd));/&\n\tOK(ibv_dereg_mr(w.mr));/
}
/^static void patient_7(/,/^}/s/attr.ah_attr.is_global = 1;/attr.ah_attr.is_global = 0;/
/^static void patient_8(/,/^}/{
	/OK(ibv_destroy_qp(qp\[0\]));/d
	/OK(ibv_destroy_qp(qp\[1\]));/d
}
/^static void patient_9(/,/^}/s/to_rts(&w, qp, 0x9a, &peer);/to_rts(\&w, qp, 0x99, \&peer);/
/^static void other_10(/,/^}/{
	/OK(ibv_dereg_mr(w.mr));/d
	s/^\tswap(sock, "r", &done, 1);/\tOK(ibv_dereg_mr(w.mr));\n&/
}
