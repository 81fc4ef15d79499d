// SPDX-License-Identifier: MIT
/*
 * service.c —— 每种请求该怎么答
 *
 * StartRead 要花时间，在 answer.c；其余的都当场作答。
 */
#include "service.h"

#include "answer.h"

#include <errno.h>

static void on_expired(struct engine_session *session, void *context)
{
	(void)context;
	/* 数据已到、正等 CompleteRead 的，无人可告知；还在途的，有人等着。*/
	if (session->read)
		engine_read_expire(session->read);
}

int engine_service_open(struct engine_service *service)
{
	struct rdma_resources *res = service->link->res;

	if (service->max_bytes > res->device_attr.max_mr_size)
		service->max_bytes = res->device_attr.max_mr_size;
	TAILQ_INIT(&service->waiting);
	engine_pool_init(&service->pool, res->pd, service->budget);
	service->sessions = (struct engine_sessions){
		.most = service->max_sessions,
		.default_secs = service->session_secs,
		.timers = &service->loop->timers,
		.pool = &service->pool,
		.expired = on_expired,
		.context = service,
	};
	return engine_sessions_open(&service->sessions);
}

void engine_service_close(struct engine_service *service)
{
	engine_sessions_close(&service->sessions);
	engine_pool_trim(&service->pool);
}

/* 重新连上了：等着的一个个上路。失败的会当场作答，并离开队列。*/
void engine_service_link_up(void *context)
{
	struct engine_service *service = context;

	while (!TAILQ_EMPTY(&service->waiting))
		engine_read_go_on(TAILQ_FIRST(&service->waiting));
}

void engine_service_gone(struct ipc_client *client, void *context)
{
	struct engine_service *service = context;

	if (client->read)
		engine_read_abandon(client->read);
	engine_owner_end(&client->owner);
	engine_reads_idle(service);
}

static void ping(struct ipc_client *client, const struct engine_ping *r)
{
	uint64_t now = engine_unix_ns();
	const struct engine_message m = {
		.type = ENGINE_PONG,
		.pong = { .client_timestamp_ns = r->timestamp_ns,
			  .server_timestamp_ns = now,
			  /* 两个进程的钟可能不一致；差为负就算 0，别绕回去。*/
			  .server_rtt_ns = now > r->timestamp_ns
						   ? now - r->timestamp_ns
						   : 0 },
	};

	engine_ipc_answer(client, &m, -1);
}

static void capabilities(struct engine_service *service,
			 struct ipc_client *client)
{
	const struct rdma_resources *res = service->link->res;
	char gid[GID_TEXT_SIZE];
	struct engine_message m = { .type = ENGINE_GET_CAPABILITIES_RESPONSE };

	m.capabilities = (struct engine_get_capabilities_response){
		.device_name = engine_text_of(
			ibv_get_device_name(res->context->device)),
		.vendor_id = res->device_attr.vendor_id,
		.max_transfer_size = service->max_bytes,
		.max_sessions = service->max_sessions,
		.active_sessions = service->sessions.count,
		.port_gid = engine_text_of(gid_text(gid, res->gid.raw)),
		.port_lid = res->port_attr.lid,
		.supported_auth = { 1,
				    { engine_text_of(service->auth.needed
							     ? "token"
							     : "none") } },
		.version = engine_text_of(ENGINE_VERSION),
		.real_rdma = true, /* verbs 设备在手，rxe 也是真的 */
		.extensions = { 2,
				{ engine_text_of("MapBuffer"),
				  engine_text_of("ReadProgress") } },
	};
	engine_ipc_answer(client, &m, -1);
}

static void start_read(struct engine_service *service,
		       struct ipc_client *client,
		       const struct engine_start_read *request)
{
	if (engine_auth_check(&service->auth, request->auth_token))
		engine_read_start(service, client, request);
	else
		engine_ipc_fail(
			client,
			engine_failure_of(ENGINE_PERMISSION_DENIED,
					  request->auth_token.data
						  ? "the auth_token is wrong"
						  : "an auth_token is needed"));
}

// region owner
/*
 * 找到 session，或已替它作答（NULL）。
 *
 * 知道 id 的不一定是它的主人：id 会写进日志，会传来传去。buffer 用完要回到主人手里、装它
 * 的下一次读取；若曾交给过别人，那人的映射从此什么都看得见。所以只认开始它的那条连接：
 * 连接一断 session 就结束，没有哪个守规矩的 client 会换一条连接来用它。
 */
static struct engine_session *session_of(struct engine_service *service,
					 struct ipc_client *client,
					 struct engine_text id)
{
	struct engine_session *session = NULL;
	struct engine_failure failure;
	int rc = engine_session_find(&service->sessions, id, &session);

	if (!rc && session->owner != &client->owner)
		failure = engine_failure_of(ENGINE_PERMISSION_DENIED,
					    "session %s is another client's",
					    session->id);
	else if (!rc && session->ready)
		return session;
	else
		failure = rc == -ETIME ? engine_session_expired(id)
				       : engine_session_unknown(id);
	engine_ipc_fail(client, failure);
	return NULL;
}
// endregion owner

// region complete
/* 为什么不算成功；NULL：双方说的一致。*/
static const char *disagreement(const struct engine_complete_read *r,
				const struct engine_session *session)
{
	if (!r->success)
		return "Session ended; the client reported a failure";
	if (r->bytes_transferred != session->size)
		return "Session ended; bytes_transferred is not the size read";
	if (r->client_crc.given && r->client_crc.value != session->crc)
		return "Session ended; client_crc is not the CRC-32C of the "
		       "bytes read";
	return NULL;
}

static void complete_read(struct engine_service *service,
			  struct ipc_client *client,
			  const struct engine_complete_read *request)
{
	struct engine_session *session =
		session_of(service, client, request->session_id);
	struct engine_message m = { .type = ENGINE_COMPLETE_READ_RESPONSE };
	const char *problem;

	if (!session)
		return;
	problem = disagreement(request, session);
	m.completed = (struct engine_complete_read_response){
		.success = !problem,
		.server_crc = { true, session->crc },
		.message = engine_text_of(
			problem ? problem : "Session completed successfully"),
	};
	engine_session_end(session);
	engine_ipc_answer(client, &m, -1);
}
// endregion complete

static void map_buffer(struct engine_service *service,
		       struct ipc_client *client,
		       const struct engine_map_buffer *request)
{
	struct engine_session *session =
		session_of(service, client, request->session_id);
	struct engine_message m = { .type = ENGINE_MAP_BUFFER_RESPONSE };
	int fd;

	if (!session)
		return;
	fd = engine_buffer_give(session->buffer, session->size);
	if (fd < 0) {
		engine_ipc_fail(client, engine_failure_of(
						ENGINE_INTERNAL,
						"the buffer cannot be sealed"));
		return;
	}
	m.mapped = (struct engine_map_buffer_response){
		.session_id = engine_text_of(session->id),
		.size = session->size,
	};
	engine_ipc_answer(client, &m, fd);
}

void engine_service_request(struct ipc_client *client,
			    const struct engine_message *message, void *context)
{
	struct engine_service *service = context;

	switch (message->type) {
	case ENGINE_PING:
		ping(client, &message->ping);
		break;
	case ENGINE_GET_CAPABILITIES:
		capabilities(service, client);
		break;
	case ENGINE_START_READ:
		start_read(service, client, &message->start_read);
		break;
	case ENGINE_COMPLETE_READ:
		complete_read(service, client, &message->complete_read);
		break;
	case ENGINE_MAP_BUFFER:
		map_buffer(service, client, &message->map_buffer);
		break;
	default: /* 不认识的，以及本该由我们来发的 */
		engine_ipc_fail(client, engine_unsupported(message->name));
	}
}
