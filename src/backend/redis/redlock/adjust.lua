-- Gives back. Further arguments, for each name: the token of the grant that is given back, or nothing, and the slot that
-- the claim wants, or nothing.
for n = 1, names do
  local token = ARGV[more + 2 * n - 2]
  if token ~= '' then give_back(n, token, ARGV[more + 2 * n - 1]) end
end
for n = 1, names do settle(n) end
return answer('in')
