-- What every step on queues begins with. Keys, for each name: the lock, its queue, its counters, the claim that
-- the step is about. Arguments: the id of that claim, then for each name what claims' keys begin and end with.
-- The keys of other claims are made from these; they lie in the same slot.
local id = ARGV[1]
local names = #KEYS / 4
local more = 2 * names + 2
local mark = 'dlock:'
local function lock_key(n) return KEYS[4 * n - 3] end
local function queue_key(n) return KEYS[4 * n - 2] end
local function counters_key(n) return KEYS[4 * n - 1] end
local function claim_key(n) return KEYS[4 * n] end
