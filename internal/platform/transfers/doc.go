// Package transfers is a view of what is copied to which host: each data sync, each distribution of a model, from
// request to completion, and where each dataset and model is. It is a view.Fold, so equal logs give equal rows.
//
// # Events
//
// The catalogue documents few payload fields of these events, so each field is read under the names that the catalogue
// has for it anywhere, and some more; the first one wins.
//
//	id       transfer_id sync_id distribution_id request_id
//	name     data, games: dataset dataset_id config_key db_path
//	         models: model model_id model_name model_path config_key
//	hosts    target_nodes targets target_node target host node_id: a text or a list of texts
//	from     source_node source_host from source; the host, if targets are named beside it
//	version  version model_version data_version: a text or a whole number
//	bytes    bytes_synced bytes_transferred bytes size_bytes
//	size     size_bytes total_bytes: of the whole copy, if only a part of it was sent
//	files    file_count files games_synced entry_count
//	checked  verified checksum_verified: true or false
//	error    error reason
//	deadline deadline_seconds timeout_seconds
//
// What each event means for its transfer:
//
//	SYNC_REQUEST, SYNC_TRIGGERED, MODEL_SYNC_REQUESTED            requested
//	SYNC_RETRY_REQUESTED                                          requested again
//	DATA_SYNC_STARTED, MODEL_DISTRIBUTION_STARTED                 running
//	SYNC_STALLED                                                  stalled, but running
//	DATA_SYNC_COMPLETED, MODEL_DISTRIBUTION_COMPLETE,
//	P2P_MODEL_SYNCED, GAME_SYNCED                                 completed; the host has a copy
//	DATA_SYNC_FAILED, MODEL_DISTRIBUTION_FAILED,
//	DISTRIBUTION_INCOMPLETE, SYNC_FAILURE_CRITICAL                failed
//	SYNC_CHECKSUM_FAILED                                          failed, the copy is damaged, even if it was completed
//	SYNC_NODE_UNREACHABLE                                         failed; without a name: all that are open to the host
//
// and for copies alone:
//
//	DATABASE_CREATED                                              the node has a copy
//	MODEL_CORRUPTED                                               the copy is damaged
//	NODE_TERMINATED                                               what the node had is gone with it
//
// The kind (data, model, games) is that of the event. Events named SYNC_ are about a model if a field of models names
// it, and about data otherwise.
//
// # Which transfer an event is about
//
// With an id, the transfer of that id to that host: one id may have many hosts, and each is a transfer. Without one,
// the last transfer of the same kind and name to the same host. If that is not open (requested or running), the open
// one to the host whose name is not known yet, which then gets the name. An event without a name is about the only open
// transfer of its kind to the host. An event without a host is about all transfers of its id, or all open ones of its
// kind and name. Else a new transfer begins.
//
// # Events that are late, repeated or contradictory
//
//   - A second request of an open transfer is a repeat. If it has an id of its own, the older request is superseded,
//     unless it is running.
//   - A request or start after a failure is a retry.
//   - Completion without a request or start is a whole transfer. A request or start with its id that comes later is
//     entered as a step and changes no state.
//   - Completion after failure holds. Failure after completion contradicts it and is counted, since the copy is there;
//     without an id it is a transfer of its own, which began unseen.
//   - Completion again, without an id, is another transfer.
//
// # Bounds
//
// Of each host there are at most 256 open transfers (the oldest is superseded), the last 200 that ended, and 10 000
// copies; of all, 20 000 hosts. Names have at most 256 bytes, ids, hosts and versions 128. An event is about at most 64
// transfers. What is beyond a bound, or of a wrong type, is counted in the tally and never an error.
package transfers
