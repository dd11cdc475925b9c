# The first configuration emits nothing; a single voter has no failure to spare and
# nobody needs to hear that.
> voters 0s n1
> voters 1s n1 n2
  VOTER_PROMOTED {"active_voters":2,"reason":"unknown","voter_id":"n2","voters":2}
  QUORUM_AT_RISK {"cause":"configuration","healthy":2,"limiting":[],"quorum":2,"voters":2}
> voters 2s n1 n2 n3
  VOTER_PROMOTED {"active_voters":3,"reason":"unknown","voter_id":"n3","voters":3}
  QUORUM_RESTORED {"after":"at_risk","at_risk_ms":1000,"healthy":3,"outage_ms":0,"quorum":2,"voters":3}
# A voter that the log has not reported yet may change at once; then the hold-down counts.
> offline 10s n3 http
  VOTER_OFFLINE {"active_voters":2,"last_contact_ms":1500,"reason":"http","voter_id":"n3","voters":3}
  QUORUM_AT_RISK {"cause":"voter_offline","healthy":2,"limiting":["n3"],"quorum":2,"voters":3}
  QUORUM_PRIORITY_RECONNECT {"reason":"no_failure_to_spare","voters":["n3"]}
> online 11s n3
> offline 12s n3 http
> online 14999ms n3
> online 15s n3
  VOTER_ONLINE {"active_voters":3,"last_contact_ms":1500,"voter_id":"n3","voters":3}
  QUORUM_RESTORED {"after":"at_risk","at_risk_ms":5000,"healthy":3,"outage_ms":0,"quorum":2,"voters":3}
> offline 16s n3 http
> offline 20s n3 http
  VOTER_OFFLINE {"active_voters":2,"last_contact_ms":1500,"reason":"http","voter_id":"n3","voters":3}
  QUORUM_AT_RISK {"cause":"voter_offline","healthy":2,"limiting":["n3"],"quorum":2,"voters":3}
  QUORUM_PRIORITY_RECONNECT {"reason":"no_failure_to_spare","voters":["n3"]}
# The same report again, and one of a member without a vote, emit nothing.
> offline 30s n3 http
> offline 30s n9 http
# One more is gone: at risk is reported once, until one is to spare again.
> offline 31s n2 http
  VOTER_OFFLINE {"active_voters":1,"last_contact_ms":1500,"reason":"http","voter_id":"n2","voters":3}
> online 40s n3
  VOTER_ONLINE {"active_voters":2,"last_contact_ms":1500,"voter_id":"n3","voters":3}
> online 41s n2
  VOTER_ONLINE {"active_voters":3,"last_contact_ms":1500,"voter_id":"n2","voters":3}
  QUORUM_RESTORED {"after":"at_risk","at_risk_ms":21000,"healthy":3,"outage_ms":0,"quorum":2,"voters":3}
# Voters come and go. Who comes is taken for online.
> voters 50s n1 n2 n3 n4
  VOTER_PROMOTED {"active_voters":4,"reason":"join","voter_id":"n4","voters":4}
> offline 51s n4 http
  VOTER_OFFLINE {"active_voters":3,"last_contact_ms":1500,"reason":"http","voter_id":"n4","voters":4}
  QUORUM_AT_RISK {"cause":"voter_offline","healthy":3,"limiting":["n4"],"quorum":3,"voters":4}
  QUORUM_PRIORITY_RECONNECT {"reason":"no_failure_to_spare","voters":["n4"]}
> voters 52s n1 n2 n3
  VOTER_DEMOTED {"active_voters":3,"reason":"join","voter_id":"n4","voters":3}
  QUORUM_RESTORED {"after":"at_risk","at_risk_ms":1000,"healthy":3,"outage_ms":0,"quorum":2,"voters":3}
> voters 53s n1 n2 n3 n4 n5
  VOTER_PROMOTED {"active_voters":5,"reason":"join","voter_id":"n4","voters":5}
  VOTER_PROMOTED {"active_voters":5,"reason":"dead_server","voter_id":"n5","voters":5}
> voters 54s n1 n2
  VOTER_DEMOTED {"active_voters":2,"reason":"unknown","voter_id":"n3","voters":2}
  VOTER_DEMOTED {"active_voters":2,"reason":"join","voter_id":"n4","voters":2}
  VOTER_DEMOTED {"active_voters":2,"reason":"dead_server","voter_id":"n5","voters":2}
  QUORUM_AT_RISK {"cause":"configuration","healthy":2,"limiting":[],"quorum":2,"voters":2}
> voters 55s n1 n2 n3
  VOTER_PROMOTED {"active_voters":3,"reason":"unknown","voter_id":"n3","voters":3}
  QUORUM_RESTORED {"after":"at_risk","at_risk_ms":1000,"healthy":3,"outage_ms":0,"quorum":2,"voters":3}
# Two claims to lead in one term, and the next term ends it. A single claim, or one of an
# older term, is none.
> claims 60s 7 n1
> claims 60s 7 n2 n1
  SPLIT_BRAIN_DETECTED {"leaders":["n1","n2"],"term":7}
> claims 61s 7 n3 n1
> claims 61s 6 n3 n1
> term 62s 7 n1
> claims 63s 8 n2 n3
  SPLIT_BRAIN_DETECTED {"leaders":["n2","n3"],"term":8}
> term 64s 9 n2
  SPLIT_BRAIN_RESOLVED {"lasted_ms":1000,"leader_id":"n2","leaders":["n2","n3"],"new_term":9,"term":8}
> term 65s 10 n2
# Once all members know how, a split lasts until a leader reports its end, over changes of
# leader, and is reported once.
> unsplit 65s 10 n2
> watched-claims 66s 10 n3 n2
  SPLIT_BRAIN_DETECTED {"leaders":["n2","n3"],"term":10}
> term 67s 11 n1
> watched-claims 67s 11 n3 n1
> unsplit 68s 11 n1
  SPLIT_BRAIN_RESOLVED {"lasted_ms":2000,"leader_id":"n1","leaders":["n2","n3"],"new_term":11,"term":10}
> unsplit 69s 11 n1
# Members that lag, each reported once until it follows again.
> trails n3
  CATCHUP_AT_RISK {"entries_left":100,"log_rate":30,"member_id":"n3","member_rate":5,"trailing_entries":300,"truncated_in_ms":4000}
> trails n3
> trails n2
  CATCHUP_AT_RISK {"entries_left":100,"log_rate":30,"member_id":"n2","member_rate":5,"trailing_entries":300,"truncated_in_ms":4000}
> follows n3
> follows n3
> trails n3
  CATCHUP_AT_RISK {"entries_left":100,"log_rate":30,"member_id":"n3","member_rate":5,"trailing_entries":300,"truncated_in_ms":4000}
> forget n3
> forget n9
> trails n3
  CATCHUP_AT_RISK {"entries_left":100,"log_rate":30,"member_id":"n3","member_rate":5,"trailing_entries":300,"truncated_in_ms":4000}
# Another cluster begins: nothing is reported of its voters.
> other-cluster n7 n8
> offline 70s n7 http
  VOTER_OFFLINE {"active_voters":1,"last_contact_ms":1500,"reason":"http","voter_id":"n7","voters":2}
  QUORUM_AT_RISK {"cause":"voter_offline","healthy":1,"limiting":["n7"],"quorum":2,"voters":2}
  QUORUM_PRIORITY_RECONNECT {"reason":"no_failure_to_spare","voters":["n7"]}
