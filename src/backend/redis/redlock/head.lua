-- What every step on one node's queues begins with. Keys, for each name: the lock, its queue, its holders, its
-- counters, the claim that the step is about. Arguments: the id of that claim, then for each name what claims' keys
-- begin and end with, then a proposal for the next token, the same for all nodes.
-- The order of a queue is by score: first the node's own time of arrival, then that by which a majority of all nodes
-- knew of it, so that all nodes come to the same order; 0 is that of a claim which holds a majority.
local id = ARGV[1]
local names = #KEYS / 5
local more = 2 * names + 3
local hint = tonumber(ARGV[more - 1])
local mark = 'redlock:'
local function lock_key(n) return KEYS[5 * n - 4] end
local function queue_key(n) return KEYS[5 * n - 3] end
local function holders_key(n) return KEYS[5 * n - 2] end
local function counters_key(n) return KEYS[5 * n - 1] end
local function claim_key(n) return KEYS[5 * n] end
