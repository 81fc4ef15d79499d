# The starter is hosts.c without its answers, and with what it ignores.
/^} answers\[\] = {/,/^};/s/{ '[AB]', [A-Z]*, [0-9]* }, */{ '?', UNKNOWN, 0 }, /
/enum ibv_mtu \(mine\|peers\) = /d
s/attr.path_mtu = .*/attr.path_mtu = IBV_MTU_4096;/
/attr.min_rnr_timer = /d
s|attr.timeout = .*|attr.timeout = 0;|
s|attr.retry_cnt = .*|attr.retry_cnt = 7;|
s|attr.rnr_retry = .*|attr.rnr_retry = 0;|
/没有 ACK，不等于没有到/d
s/if (compare(sock, acknowledged, &arrived))/arrived = acknowledged;\n\tif (!rc \&\& compare(sock, acknowledged, \&arrived))/
