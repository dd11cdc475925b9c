# Flows of one's own are part of the state; a built-in one only gets how its runs are found.
> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> flow [{"name":"labels","edges":[["LABEL_REQUESTED","label.done"],["LABEL_DONE","LABEL_CHECKED"]],"run_by":["batch"]}]
> flows
  {"name":"labels","status":"registered","edges":[["LABEL_REQUESTED","LABEL_DONE"],["LABEL_DONE","LABEL_CHECKED"]],"edge_notes":[],"run_by":["batch"]}
> flow {"name":"labels","edges":[["LABEL_REQUESTED","LABEL_DONE"]]}
> flow {"name":"training_pipeline","run_by":["config_key","iteration"]}
> restart
> flows
  {"name":"training_pipeline","status":"canonical","document":"000_2a40091b2f251cc5.txt","edges":[["SELFPLAY_COMPLETE","NEW_GAMES_AVAILABLE"],["NEW_GAMES_AVAILABLE","DATA_SYNC_COMPLETED"],["DATA_SYNC_COMPLETED","TRAINING_THRESHOLD_REACHED"],["TRAINING_THRESHOLD_REACHED","TRAINING_STARTED"],["TRAINING_STARTED","TRAINING_COMPLETED"],["TRAINING_COMPLETED","EVALUATION_STARTED"],["EVALUATION_STARTED","EVALUATION_COMPLETED"],["EVALUATION_COMPLETED","PROMOTION_CANDIDATE"],["PROMOTION_CANDIDATE","MODEL_PROMOTED"],["PROMOTION_CANDIDATE","CURRICULUM_REBALANCED"]],"edge_notes":[],"run_by":["config_key","iteration"]}
  {"name":"labels","status":"registered","edges":[["LABEL_REQUESTED","LABEL_DONE"]],"edge_notes":[]}
# All of them, or none.
> flow [{"name":"other","edges":[["A","B"]]},{"name":"bad","edges":[["A","B"],["B","A"]]}]
  invalid: event: [1].bad.edges[0]: A is on a cycle, or after one, to which no first stage leads
> flow [{"name":"other","edges":[["A","CHAIN_OVERDUE"]]}]
  invalid: event: [0].other.edges[0]: CHAIN_OVERDUE cannot be a stage: the cluster reports runs by it
> flow [{"name":"Other","edges":[["A","B"]]}]
  invalid: event: [0].Other.name: a flow's name is 1 to 64 of a-z, 0-9, _ and -, a letter first
> flow {"name":"other","edges":[["A","B","C"]]}
  invalid: event: edges[0]: an edge is two types, its cause and its effect, not 3 (at byte 0)
> flows
  {"name":"training_pipeline","status":"canonical","document":"000_2a40091b2f251cc5.txt","edges":[["SELFPLAY_COMPLETE","NEW_GAMES_AVAILABLE"],["NEW_GAMES_AVAILABLE","DATA_SYNC_COMPLETED"],["DATA_SYNC_COMPLETED","TRAINING_THRESHOLD_REACHED"],["TRAINING_THRESHOLD_REACHED","TRAINING_STARTED"],["TRAINING_STARTED","TRAINING_COMPLETED"],["TRAINING_COMPLETED","EVALUATION_STARTED"],["EVALUATION_STARTED","EVALUATION_COMPLETED"],["EVALUATION_COMPLETED","PROMOTION_CANDIDATE"],["PROMOTION_CANDIDATE","MODEL_PROMOTED"],["PROMOTION_CANDIDATE","CURRICULUM_REBALANCED"]],"edge_notes":[],"run_by":["config_key","iteration"]}
  {"name":"labels","status":"registered","edges":[["LABEL_REQUESTED","LABEL_DONE"]],"edge_notes":[]}
> noflow other
  not_found: no flow "other" is registered
> noflow training_pipeline
> noflow labels
> restart
> flows
