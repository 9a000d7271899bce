for n = 1, names do settle(n) end
return positions()
